//! Pages of an operator's address: health, metrics.

use std::net::SocketAddr;

use crate::raw::{Connection, Request, WireError};

/// Fetches a page: its status and text.
///
/// # Errors
/// If it does not come.
pub async fn page(address: SocketAddr, path: &str) -> Result<(u16, String), WireError> {
    let mut connection = Connection::open(address).await?;
    connection.request(&Request::new("GET", path).header("Host", "localhost")).await?;
    let status = connection.head().await?.status;
    let body = connection.plain_body().await?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The value of a metric; `None`: it is not there. `name` has its labels.
pub async fn metric(address: SocketAddr, name: &str) -> Result<Option<f64>, WireError> {
    let (_, text) = page(address, "/metrics").await?;
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(values.filter_map(|value| value.parse().ok()).next())
}
