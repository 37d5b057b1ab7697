//! See `rejoin_fuzz::rows`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::rows::run(data));
