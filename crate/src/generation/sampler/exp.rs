//! The exponential function with the same bits on every platform.
//!
//! `f64::exp` is whatever the system's math library computes, and the last bit differs between libraries. Such a bit can decide a draw. This
//! one uses additions, multiplications and divisions only, which IEEE 754 defines to the bit.

/// ln 2 in two parts: the first has few enough bits that its multiples are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// e to the power `x`, for `x` of at most 0; relative error below 1e-15 where the result is a normal number, and 0 where it is not.
pub fn exp(x: f64) -> f64 {
    if x < -708.0 {
        return 0.0;
    }
    // x = k ln 2 + r with |r| at most ln 2 / 2, so that e^x = 2^k e^r.
    let k = (x * std::f64::consts::LOG2_E).round();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    // The Taylor series, the smallest term first: r^14 / 14! is below 1e-17.
    let mut sum = 1.0;
    for n in (1..=14).rev() {
        sum = 1.0 + sum * r / f64::from(n);
    }
    let power_of_two = f64::from_bits(((k as i64 + 1023) as u64) << 52);
    sum * power_of_two
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_systems_exponential() {
        assert_eq!(exp(0.0), 1.0);
        for step in 0..=70_800 {
            let x = -f64::from(step) * 0.01;
            let error = (exp(x) / x.exp() - 1.0).abs();
            assert!(error < 1e-15, "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn far_below_zero_is_zero() {
        assert_eq!(exp(-708.1), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    }
}
