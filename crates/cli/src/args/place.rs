//! Addresses, hosts and origins on the command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads the address of a listener. Of all names only `localhost` has the same address everywhere.
///
/// # Errors
/// A text for the operator, if it is none.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    match text.rsplit_once(':') {
        Some((name, port)) if name.eq_ignore_ascii_case("localhost") => {
            let port = port.parse().map_err(|_| "the port must be 0 to 65535".to_owned())?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        }
        _ => {
            let forms = "expected an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
            Err(format!("{forms}; no name but `localhost` is looked up"))
        }
    }
}

/// Reads a value of `Host` that is let in.
///
/// # Errors
/// A text for the operator, if it can be none.
pub(crate) fn host(text: &str) -> Result<String, String> {
    rejoin_gateway::check_host(text).map_err(|error| error.to_string())
}

/// Reads a value of `Origin` that is let in.
///
/// # Errors
/// A text for the operator, if it can be none.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    rejoin_gateway::check_origin(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_or_localhost_with_a_port() {
        assert_eq!(address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(address("localhost:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("LocalHost:8080").unwrap().to_string(), "127.0.0.1:8080");
        for text in ["", "8080", "127.0.0.1", "mcp.example:80", "localhost"] {
            let refusal = address(text).unwrap_err();
            assert!(refusal.contains("127.0.0.1:8080"), "{text}: {refusal}");
        }
        assert!(address("localhost:70000").unwrap_err().contains("port"));
    }
}
