//! Header fields, next to readers that take them apart by hand: who is let in, what is accepted,
//! which session, which events.

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use rejoin_core::id::EventId;
use rejoin_core::input::GetCursor;
use rejoin_gateway::fuzz::{HeadersRead, read_headers};
use rejoin_gateway::{check_host, check_origin};

/// Longest text that a refusal may have.
const TOLD_BYTES_MAX: usize = 800;

/// The input is a request target, and on each further line a field; the last line is also a value
/// for an operator's allow-lists.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let uri = Uri::try_from(target).unwrap_or_default();
    let mut fields = HeaderMap::new();
    let mut last = &b""[..];
    for line in lines {
        last = line;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    let listed = std::str::from_utf8(last).unwrap_or_default().trim();
    let host = check_host(listed).ok();
    let origin = check_origin(listed).ok();
    let (hosts, origins): (Vec<_>, Vec<_>) =
        (host.clone().into_iter().collect(), origin.clone().into_iter().collect());
    let read = read_headers(&uri, &fields, &hosts, &origins);
    check_listed(host.as_deref(), origin.as_deref());

    let all = |name: &str| -> Vec<&[u8]> {
        fields.get_all(name).iter().map(HeaderValue::as_bytes).collect()
    };
    check_told(&read);
    let accepts = |kind, rest| accepts(&all(ACCEPT.as_str()), kind, rest);
    let stream = accepts("text", "event-stream");
    let json = accepts("application", "json");
    let is_json = all(CONTENT_TYPE.as_str()).first().is_some_and(|value| {
        let essence = text(value).and_then(|value| value.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
    });
    assert_eq!(read.get.is_ok(), stream, "accept");
    assert_eq!(read.post.is_ok(), is_json && stream && json, "accept of a POST");
    let length = all(CONTENT_LENGTH.as_str()).first().copied().and_then(text);
    assert_eq!(read.content_length, length.and_then(|length| length.parse().ok()));
    check_allowed(&uri, &all(HOST.as_str()), &all(ORIGIN.as_str()), &read.allowed, listed);
    let ids = all("mcp-session-id");
    let is_visible = |id: &[u8]| !id.is_empty() && id.iter().all(u8::is_ascii_graphic);
    match (&read.session_id, &ids[..]) {
        (Ok(None), []) => {}
        (Ok(Some(id)), [sent]) => assert!(is_visible(sent) && id.as_bytes() == *sent),
        (Err(_), [sent]) => assert!(!is_visible(sent)),
        (Err(_), [_, _, ..]) => {}
        (read, sent) => panic!("{} session ids, but: {read:?}", sent.len()),
    }
    check_events(
        &read.acknowledgements,
        read.cursor,
        &all("mcp-stream-ack"),
        &all("last-event-id"),
    );
    check_token(&read.idempotency_key, &all("idempotency-key"));
    let revisions = all("mcp-protocol-version");
    match &read.revision {
        Ok(None) => assert!(revisions.is_empty()),
        Ok(Some(date)) => assert_eq!(revisions, [date.as_bytes()], "a revision"),
        Err(_) => assert!(revisions.len() > 1 || text(revisions[0]).is_none()),
    }
}

/// Refusals are short, and safe to show.
fn check_told(read: &HeadersRead) {
    let told = [
        read.allowed.as_ref().err(),
        read.post.as_ref().err(),
        read.get.as_ref().err(),
        read.session_id.as_ref().err(),
        read.revision.as_ref().err(),
        read.idempotency_key.as_ref().err(),
    ];
    for text in told.into_iter().flatten() {
        assert!(text.len() <= TOLD_BYTES_MAX, "{text}");
        assert!(!text.contains(|character: char| character.is_control()), "{text:?}");
    }
}

/// A value of visible ASCII, spaces and tabs.
fn text(value: &[u8]) -> Option<&str> {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    std::str::from_utf8(value).ok().filter(|_| value.iter().all(is_text))
}

/// RFC 9110 section 12.5.1: the most specific range counts, and of equal ones the kindest.
fn accepts(lines: &[&[u8]], kind: &str, rest: &str) -> bool {
    let mut best = [None; 3];
    for range in lines.iter().filter_map(|line| text(line)).flat_map(|line| line.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let place = match &name[..] {
            "*/*" => 0,
            name if name == format!("{kind}/*") => 1,
            name if name == format!("{kind}/{rest}") => 2,
            _ => continue,
        };
        let weight = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().to_owned())
        });
        let allows = weight.is_none_or(|weight| {
            weight.parse::<f32>().is_ok_and(|weight| weight.total_cmp(&0.0).is_gt() && weight > 0.0)
        });
        best[place] = Some(best[place].unwrap_or(false) || allows);
    }
    best.into_iter().flatten().next_back().unwrap_or(false)
}

/// What an operator may list is listed as it is, and stays so.
fn check_listed(host: Option<&str>, origin: Option<&str>) {
    if let Some(host) = host {
        assert_eq!(check_host(host).as_deref(), Ok(host));
        let mut fields = HeaderMap::new();
        fields.insert(HOST, host.parse().expect("a host is a field value"));
        let read = read_headers(&Uri::default(), &fields, &[host.to_owned()], &[]);
        assert_eq!(read.allowed, Ok(()), "{host:?} was listed");
    }
    if let Some(origin) = origin {
        assert_eq!(check_origin(origin).as_deref(), Ok(origin));
        let mut fields = HeaderMap::new();
        fields.insert(HOST, HeaderValue::from_static("localhost"));
        fields.insert(ORIGIN, origin.parse().expect("an origin is a field value"));
        let read = read_headers(&Uri::default(), &fields, &[], &[origin.to_owned()]);
        assert_eq!(read.allowed, Ok(()), "{origin:?} was listed");
    }
}

/// Whoever is let in named one host, and it is of this machine or listed; so is every origin. Who
/// is refused did not plainly do so.
fn check_allowed(
    uri: &Uri,
    hosts: &[&[u8]],
    origins: &[&[u8]],
    allowed: &Result<(), String>,
    listed: &str,
) {
    let named = uri.authority().map(|authority| authority.as_str());
    if let Err(told) = allowed {
        let is_one = told.contains("exactly one valid Host") || hosts.len() == 1;
        assert!(is_one, "{} hosts, but: {told}", hosts.len());
        let is_plain =
            |name: &str| is_plainly_here(name) || check_host(listed).as_deref() == Ok(name);
        let host = hosts.first().and_then(|host| text(host));
        let hosts_are = hosts.len() == 1 && host.into_iter().chain(named).all(is_plain);
        let is_origin = |origin: &[u8]| text(origin).is_some_and(|o| is_plain_origin(o, listed));
        let is_plain = host.is_some() && hosts_are && origins.iter().all(|one| is_origin(one));
        assert!(!is_plain, "{hosts:?} {origins:?} with {listed:?}: {told}");
        return;
    }
    let [host] = hosts else { panic!("{} hosts are let in", hosts.len()) };
    let host = std::str::from_utf8(host).expect("a host is text");
    for name in named.into_iter().chain([host]) {
        assert!(is_of_this_machine(name) || is_listed(name, listed), "{name:?} is let in");
    }
    for origin in origins {
        let origin = std::str::from_utf8(origin).expect("an origin is text");
        let trimmed = origin.trim_end_matches('/');
        let is_listed = trimmed.eq_ignore_ascii_case(listed.trim_end_matches('/'));
        let place = trimmed.split_once("://").and_then(|(scheme, rest)| {
            let is_web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
            is_web.then(|| rest.split(['/', '?', '#']).next().unwrap_or_default())
        });
        let is_local = place.is_some_and(is_of_this_machine);
        assert!(is_local || is_listed, "{origin:?} is let in");
    }
}

/// A loopback name in its plainest form, with a port perhaps: whoever sends it must be let in.
fn is_plainly_here(name: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    let address = name.strip_prefix("[::1]").map(|rest| ("[::1]", rest.strip_prefix(':')));
    let (host, port) = match address {
        Some((host, Some(port))) => (host, Some(port)),
        Some((host, None)) if name == host => (host, None),
        Some(_) => return false,
        None => name.split_once(':').map_or((name, None), |(host, port)| (host, Some(port))),
    };
    let four = host.parse::<std::net::Ipv4Addr>();
    let is_four = four.is_ok_and(|four| four.octets()[0] == 127 && four.to_string() == host);
    (is_four || matches!(host, "localhost" | "[::1]")) && port.is_none_or(is_port)
}

fn is_plain_origin(origin: &str, listed: &str) -> bool {
    let local = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    local.is_some_and(is_plainly_here) || check_origin(listed).as_deref() == Ok(origin)
}

fn is_of_this_machine(authority: &str) -> bool {
    let name = without_port(authority.rsplit('@').next().unwrap_or_default());
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_four = |name: &str| {
        let parts: Vec<_> = name.split('.').collect();
        parts.len() == 4 && parts[0] == "127" && parts.iter().all(|part| part.parse::<u8>().is_ok())
    };
    let is_six = bare.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_four(bare) || is_six
}

fn is_listed(name: &str, listed: &str) -> bool {
    let listed = listed.trim_end_matches('/');
    name.eq_ignore_ascii_case(listed) || without_port(name).eq_ignore_ascii_case(listed)
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // Between brackets a colon is no port's.
            if name.starts_with('[') && !name.ends_with(']') { authority } else { name }
        }
        _ => authority,
    }
}

/// Every event that is told was sent, to the letter.
fn check_events(acked: &[EventId], cursor: GetCursor, acks: &[&[u8]], cursors: &[&[u8]]) {
    let parts = acks.iter().filter_map(|line| text(line)).flat_map(|line| line.split(','));
    let parts = parts.map(str::trim).filter_map(|part| part.parse::<EventId>().ok());
    assert_eq!(parts.collect::<Vec<_>>(), acked);
    match (cursor, cursors) {
        (GetCursor::None, [] | [b""]) | (GetCursor::Malformed, [_, _, ..]) => {}
        (GetCursor::At(id), [sent]) => assert_eq!(id.to_string().as_bytes(), *sent),
        (GetCursor::Malformed, [sent]) => {
            assert!(text(sent).is_none_or(|sent| sent.parse::<EventId>().is_err()));
        }
        (cursor, sent) => panic!("{} cursors, but: {cursor:?}", sent.len()),
    }
}

/// A token is what was sent once, with or without quotes around it.
fn check_token(token: &Result<Option<String>, String>, sent: &[&[u8]]) {
    match (token, sent) {
        (Ok(None), []) | (Err(_), [_, _, ..]) => {}
        (Ok(Some(token)), [sent]) => {
            assert!((1..=256).contains(&token.len()));
            let quoted = format!("\"{token}\"");
            assert!(*sent == token.as_bytes() || *sent == quoted.as_bytes());
        }
        (Err(_), [sent]) => {
            let bare = sent.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            let bytes = bare.unwrap_or(sent).len();
            assert!(!(1..=256).contains(&bytes) || std::str::from_utf8(sent).is_err());
        }
        (token, sent) => panic!("{} tokens, but: {token:?}", sent.len()),
    }
}
