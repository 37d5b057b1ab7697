//! See `rejoin_fuzz::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::options::run(data));
