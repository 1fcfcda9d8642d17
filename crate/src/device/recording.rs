//! Launches that are recorded once and replayed, and buffers that outlive them.
//!
//! Enqueueing a launch costs some tens of microseconds in a browser, most of it looking things up; replaying a recorded one costs a tenth of it. The launches must be the
//! same each time, so what changes from one replay to the next lies in buffers.

use crate::error::{Error, Result};
use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::Bytes;
use cubecl::client::Graph;
use std::task::{Context, Poll, Waker};

/// Launches that were recorded. Their buffers stay as long as this does.
#[derive(Debug)]
pub(crate) struct Recording(Graph);

impl Recording {
    /// Runs `launches` to make their pipelines and their memory, then records them: the recorded pass is not executed before the first replay. Gives what the
    /// recorded pass returned, or none where `device` cannot record.
    ///
    /// `launches` may enqueue kernels and nothing else.
    ///
    /// # Errors
    /// `Device` when the first pass fails.
    pub async fn of<T>(device: &Device, mut launches: impl FnMut() -> T) -> Result<Option<(Self, T)>> {
        let client = match device.as_dispatch() {
            DispatchDevice::Cube(device) => device.client(),
            #[cfg(not(target_arch = "wasm32"))]
            _ => return Ok(None),
        };
        if client.graph_prepare().is_err() {
            return Ok(None);
        }
        drop(launches());
        if let Err(error) = client.sync().await {
            // Closes what was prepared; there is nothing to record.
            let _ = client.stop_capture();
            return Err(Error::Device(error.to_string()));
        }
        if client.start_capture().is_err() {
            return Ok(None);
        }
        let output = launches();
        Ok(client.stop_capture().ok().map(|graph| (Self(graph), output)))
    }

    /// Enqueues the recorded launches.
    ///
    /// # Errors
    /// `Device` when the device refuses.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: the recording keeps the memory of its launches; what they read besides, the model and the cache, lives beside it in a session.
        unsafe { self.0.replay() }.map_err(|error| Error::Device(error.to_string()))
    }
}

/// A device buffer of 32-bit words that recorded launches read and write, and that is written and read from outside between them.
#[derive(Debug, Clone)]
pub(crate) struct Words<const D: usize>(Tensor<D, Int>);

impl<const D: usize> Words<D> {
    /// A buffer of zeros.
    pub fn zeros(shape: [usize; D], device: &Device) -> Self {
        let data = TensorData::new(vec![0u32; shape.iter().product()], shape);
        Self(Tensor::from_data(data, (device, DType::U32)))
    }

    /// The buffer as a tensor. What a kernel writes to it in place is seen here.
    pub fn tensor(&self) -> Tensor<D, Int> {
        self.0.clone()
    }

    /// Replaces the buffer's words, in order with what was enqueued before and after.
    ///
    /// # Errors
    /// `Device` where the buffer is not on a GPU.
    pub fn write(&self, words: &[u32]) -> Result<()> {
        let tensor = cube_tensor(self.tensor())?;
        tensor.client.write(&tensor.handle, Bytes::from_bytes_vec(bytemuck::cast_slice(words).to_vec()));
        Ok(())
    }
}

/// Submits what was enqueued with a copy of `tensor`'s words, at once; the future waits for them.
///
/// # Errors
/// `Device` where the tensor is not on a GPU; the future's, when the device fails.
pub(crate) fn read_words<const D: usize>(
    tensor: Tensor<D, Int>,
) -> Result<impl Future<Output = Result<Vec<u32>>> + use<D>> {
    let tensor = cube_tensor(tensor)?;
    let mut read = Box::pin(async move {
        let read = tensor.client.read_async(vec![tensor.handle.clone()]);
        let buffers = read.await.map_err(|error| Error::Device(error.to_string()))?;
        let bytes = buffers.first().ok_or_else(|| Error::Device("nothing was read back".into()))?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    });
    // A future does nothing before it is polled; here, that submits the work and the copy.
    let first = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    Ok(async move {
        match first {
            Poll::Ready(words) => words,
            Poll::Pending => read.await,
        }
    })
}

fn cube_tensor<const D: usize>(tensor: Tensor<D, Int>) -> Result<CubeTensor> {
    tensor.try_into_primitive::<CubeBackend>().map_err(|error| Error::Device(format!("{error:?}")))
}
