//! How long a launch takes.

use cubecl::future::block_on;
use hearth::Result;
use hearth::device::sync_gpu;
use std::time::Instant;

/// A round is at least about so long, so that waiting for its end does not count.
const ROUND_SECONDS: f64 = 0.05;
/// Rounds are taken until they have lasted so long together,
const ALL_SECONDS: f64 = 1.0;
/// and so many of each at least.
const MIN_ROUNDS: usize = 3;

/// Something that is launched again and again.
pub struct Timed {
    launch: Box<dyn Fn(usize)>,
    /// Launches so far.
    done: usize,
    /// Launches of a round.
    launches: usize,
}

impl Timed {
    /// Launches it until its kernels are compiled and the launches of a round are known. `launch` is told how many there were before.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub fn new(launch: Box<dyn Fn(usize)>) -> Result<Self> {
        let mut timed = Self { launch, done: 0, launches: 1 };
        let mut seconds = timed.round()?;
        // The first launch compiles as well, which does not matter where it takes that long.
        if seconds < ALL_SECONDS {
            seconds = timed.round()?;
        }
        while seconds < ROUND_SECONDS {
            // A little more than it seems to take; not all at once, since a few launches tell little.
            let growth = (1.2 * ROUND_SECONDS / seconds).clamp(1.2, 10.0);
            timed.launches = (timed.launches as f64 * growth).ceil() as usize;
            seconds = timed.round()?;
        }
        Ok(timed)
    }

    /// Seconds of a round.
    fn round(&mut self) -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..self.launches {
            (self.launch)(self.done);
            self.done += 1;
        }
        block_on(sync_gpu())?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// Seconds of one launch of each: medians of rounds that are taken in turn, so that what else happens on the machine slows all of them alike.
///
/// # Errors
/// `Device` when the device fails.
pub fn medians<const N: usize>(mut all: [&mut Timed; N]) -> Result<[f64; N]> {
    let begin = Instant::now();
    let mut rounds = [const { Vec::new() }; N];
    while rounds.iter().any(|rounds| rounds.len() < MIN_ROUNDS) || begin.elapsed().as_secs_f64() < ALL_SECONDS {
        for (timed, rounds) in all.iter_mut().zip(&mut rounds) {
            rounds.push(timed.round()? / timed.launches as f64);
        }
    }
    Ok(rounds.map(|mut rounds| {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    }))
}
