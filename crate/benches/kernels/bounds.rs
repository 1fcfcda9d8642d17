//! What the device can do at most: copy memory, and multiply 4-bit weights with nothing else to do.

use crate::bare::{Bare, WIDTH};
use crate::timing::{Timed, medians};
use cubecl::prelude::*;
use cubecl::server::Handle;
use hearth::Result;
use serde::Serialize;

/// Bytes of a buffer, where the device's limit allows it.
const COPIED_BYTES: u64 = 64 << 20;
/// Pairs of buffers that are copied in turn: together they are larger than caches are.
const PAIRS: usize = 4;
/// Units of a cube.
const UNITS: usize = 256;
/// Vectors that a unit copies.
const VECTORS: usize = 8;
/// Bytes that a cube copies.
const CUBE_BYTES: usize = 16 * VECTORS * UNITS;

/// The most that the device does in a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rates {
    /// Bytes that a plain copy reads and writes.
    pub copied_bytes: f64,
    /// Multiply-adds of the bare q4 kernel.
    pub bare_multiply_adds: f64,
}

/// The kernels of both bounds, ready to be timed.
pub struct Bounds {
    copy: Timed,
    bare: Timed,
    /// Bytes that a copy reads and writes.
    bytes: usize,
}

impl Bounds {
    /// Prepares both on the GPU that is open.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub fn new(client: &Client) -> Result<Self> {
        let (copier, bare) = (Copier::new(client), Bare::new());
        Ok(Self {
            bytes: 2 * copier.bytes(),
            copy: Timed::new(Box::new(move |index| copier.launch(index)))?,
            bare: Timed::new(Box::new(move |_| bare.launch()))?,
        })
    }

    /// The rates alone.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub fn rates(&mut self) -> Result<Rates> {
        let [copy, bare] = medians([&mut self.copy, &mut self.bare])?;
        Ok(self.rates_of(copy, bare))
    }

    /// Seconds of a launch of `kernel`, and the rates in the same seconds.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub fn beside(&mut self, kernel: &mut Timed) -> Result<(f64, Rates)> {
        let [kernel, copy, bare] = medians([kernel, &mut self.copy, &mut self.bare])?;
        Ok((kernel, self.rates_of(copy, bare)))
    }

    fn rates_of(&self, copy: f64, bare: f64) -> Rates {
        Rates { copied_bytes: self.bytes as f64 / copy, bare_multiply_adds: (WIDTH * WIDTH) as f64 / bare }
    }
}

/// A unit copies a few vectors of 128 bits, `stride` apart.
#[cube(launch_unchecked)]
fn copy<N: Size>(from: &[Vector<u32, N>], to: &mut [Vector<u32, N>], #[comptime] stride: usize) {
    #[unroll]
    for i in 0..VECTORS {
        to[ABSOLUTE_POS + i * stride] = from[ABSOLUTE_POS + i * stride];
    }
}

/// The copying kernel and its buffers.
struct Copier {
    client: Client,
    pairs: Vec<[Handle; 2]>,
    cubes: usize,
}

impl Copier {
    fn new(client: &Client) -> Self {
        let limit = client.properties().memory.max_page_size.min(COPIED_BYTES);
        let cubes = limit as usize / CUBE_BYTES;
        let data = vec![0x5a; cubes * CUBE_BYTES];
        let buffer = || client.create_from_slice(&data);
        let pairs = (0..PAIRS).map(|_| [buffer(), buffer()]).collect();
        Self { client: client.clone(), pairs, cubes }
    }

    /// Bytes of a buffer.
    fn bytes(&self) -> usize {
        self.cubes * CUBE_BYTES
    }

    /// Enqueues a copy of a whole buffer.
    fn launch(&self, index: usize) {
        let [from, to] = &self.pairs[index % PAIRS];
        let vectors = self.bytes() / 16;
        // SAFETY: the cubes cover the vectors of the buffers exactly.
        unsafe {
            copy::launch_unchecked(
                &self.client,
                CubeCount::Static(self.cubes as u32, 1, 1),
                CubeDim::new_1d(UNITS as u32),
                4,
                BufferArg::from_raw_parts(from.clone(), vectors),
                BufferArg::from_raw_parts(to.clone(), vectors),
                vectors / VECTORS,
            );
        }
    }
}
