//! A proxy between client and gateway: its kernel acknowledges in place of the client's.

use crate::history::Leave;

use super::End;

/// What it does when its client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// It closes the connection to the gateway too.
    Tells,
    /// It reads the answer to its end, for nobody.
    Swallows,
}

/// Carries bytes both ways until both are done.
pub async fn relay(proxy: Proxy, client: End, gateway: End) {
    tokio::join!(up(proxy, &client, &gateway), down(&client, &gateway));
}

async fn up(proxy: Proxy, client: &End, gateway: &End) {
    loop {
        let mut bytes = Vec::new();
        match client.read(&mut bytes).await {
            Ok(length) if length > 0 => {
                if gateway.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            // It is gone.
            _ => {
                if proxy == Proxy::Tells {
                    gateway.leave(Leave::Close);
                }
                return;
            }
        }
    }
}

async fn down(client: &End, gateway: &End) {
    loop {
        let mut bytes = Vec::new();
        match gateway.read(&mut bytes).await {
            Ok(length) if length > 0 => {
                // Whether anybody takes it or not, it reads on.
                let _taken = client.write_all(&bytes).await.is_ok();
            }
            Ok(_) => return client.shutdown(),
            Err(_) => return client.leave(Leave::Reset),
        }
    }
}
