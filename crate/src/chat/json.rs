//! The `tojson` filter as `transformers` gives it to templates: Python's `json.dumps` with `ensure_ascii=False`.
//!
//! minijinja's own filter escapes `<`, `>`, `&` and `'` for HTML; a model would see the escapes.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// `value | tojson` and `value | tojson(indent=4)`.
pub fn tojson(value: &Value, indent: Option<usize>, arguments: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => arguments.get("indent")?,
    };
    // The defaults of json.dumps are what these are given as, when they are.
    for name in ["ensure_ascii", "separators", "sort_keys"] {
        if arguments.has(name) {
            let given: Value = arguments.get(name)?;
            if given.is_true() {
                return Err(invalid(format!("tojson({name}={given}) is not supported")));
            }
        }
    }
    arguments.assert_all_used()?;

    let formatter = PythonFormatter { indent: indent.map(|width| width.min(16)), level: 0, is_empty: true };
    let mut bytes = Vec::new();
    (value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter)))
        .map_err(|error| invalid(format!("tojson: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| invalid(format!("tojson: {error}")))?;
    Ok(Value::from(text))
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Python's layout: `, ` and `: ` on one line, or one element a line.
struct PythonFormatter {
    indent: Option<usize>,
    level: usize,
    /// Whether the innermost array or object has no element so far.
    is_empty: bool,
}

impl PythonFormatter {
    fn begin(&mut self, writer: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.level += 1;
        self.is_empty = true;
        writer.write_all(bracket)
    }

    fn begin_element(&mut self, writer: &mut (impl Write + ?Sized), first: bool) -> io::Result<()> {
        self.is_empty = false;
        match self.indent {
            Some(_) => {
                if !first {
                    writer.write_all(b",")?;
                }
                self.new_line(writer)
            }
            None if first => Ok(()),
            None => writer.write_all(b", "),
        }
    }

    fn end(&mut self, writer: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if !self.is_empty {
            self.new_line(writer)?;
        }
        self.is_empty = false;
        writer.write_all(bracket)
    }

    /// The next line and its indentation, if there are lines.
    fn new_line(&self, writer: &mut (impl Write + ?Sized)) -> io::Result<()> {
        match self.indent {
            Some(width) => write!(writer, "\n{:1$}", "", width * self.level),
            None => Ok(()),
        }
    }
}

impl Formatter for PythonFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_element(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_element(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
