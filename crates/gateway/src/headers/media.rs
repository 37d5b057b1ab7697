//! Media types of `Content-Type` and `Accept` (RFC 9110 sections 8.3 and 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// A media type without its parameters.
pub(super) fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

/// True if an `Accept` line allows `wanted`, by its most specific range. Without the header nothing
/// is allowed: MCP clients must list what they take.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges = lines.flat_map(|line| line.split(','));
    let matching = ranges.filter_map(|range| Some((precision(essence(range), wanted)?, range)));
    let best = matching.max_by_key(|(precision, range)| (*precision, is_allowed(range)));
    best.is_some_and(|(_, range)| is_allowed(range))
}

/// How exactly a range names `wanted`; `None`: not at all.
fn precision(range: &str, wanted: &str) -> Option<u8> {
    let (kind, _) = wanted.split_once('/')?;
    if range.eq_ignore_ascii_case(wanted) {
        return Some(2);
    }
    match range.split_once('/')? {
        ("*", "*") => Some(0),
        (range_kind, "*") if range_kind.eq_ignore_ascii_case(kind) => Some(1),
        _ => None,
    }
}

/// False if the range has weight 0.
fn is_allowed(range: &str) -> bool {
    let weight = range.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
}
