//! See `rejoin_fuzz::sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::sse::run(data));
