//! A gateway in front of a server over HTTP, both processes of their own.

use std::ffi::OsStr;
use std::net::SocketAddr;

use rejoin_testkit::call::Call;
use rejoin_testkit::count::CountFile;
use rejoin_testkit::deadline::WAIT;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::process::Server;
use rejoin_testkit::raw::{Connection, Request};
use rejoin_testkit::session::Session;
use serde_json::Value;

/// A server that does nothing wrong.
pub(crate) const SMALL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream_http_server.py");

/// A gateway, and the server behind it.
pub(crate) struct Bench {
    pub(crate) gateway: Server,
    pub(crate) address: SocketAddr,
    pub(crate) upstream: Server,
    script: &'static str,
    place: SocketAddr,
    pub(crate) count: CountFile,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// In front of this server, with further arguments of the server and of the gateway.
    pub(crate) async fn start(
        script: &'static str,
        of_server: &[&str],
        of_gateway: &[&str],
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let count = CountFile::at(folder.path().join("count"));
        let mut server = vec![script.as_ref(), count.path().as_os_str()];
        server.extend(of_server.iter().map(OsStr::new));
        let mut upstream = Server::start_tied("python3", server)?;
        let place = upstream.address("serves", WAIT).await?;
        let url = format!("http://{place}/mcp?key=secret");
        let anywhere = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let named = ["--upstream", &url, "--upstream-header", "X-Tenant"];
        let log = ["--log", "info,rejoin_gateway::telemetry=debug"];
        let arguments = [&["serve"][..], &anywhere, &named, &log, of_gateway].concat();
        let mut gateway = Server::start(env!("CARGO_BIN_EXE_rejoin"), arguments)?;
        let address = gateway.address("listens", WAIT).await?;
        Ok(Self { gateway, address, upstream, script, place, count, _folder: folder })
    }

    /// Kills the server and starts it again, as one that answers this to sessions it does not know.
    pub(crate) async fn restart(&mut self, unknown: &str) -> TestResult {
        self.upstream.kill()?;
        let port = self.place.port().to_string();
        let file = self.count.path().display().to_string();
        let arguments = [self.script, &file, &port, unknown, "close"];
        self.upstream = Server::start_tied("python3", arguments)?;
        self.upstream.address("serves", WAIT).await?;
        Ok(())
    }

    /// A session as the newest client.
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(Session::open(self.address).await?)
    }

    /// Reads some messages of a call, then cuts its connection; gives the cursor, once the gateway
    /// knows of the loss.
    pub(crate) async fn cut(
        &self,
        session: &Session,
        call: &Call,
        seen: usize,
    ) -> Result<String, Failure> {
        let mut stream = session.call(call).await?;
        let cursor = stream.messages(seen).await?;
        stream.cut_rst()?;
        self.gateway.log_line("to=\"owed\"", WAIT).await?;
        Ok(cursor)
    }

    /// Posts on a new connection and reads the response.
    pub(crate) async fn post(&self, post: &Request) -> Result<Value, Failure> {
        let mut connection = Connection::open(self.address).await?;
        connection.request(post).await?;
        Ok(connection.response().await?)
    }
}
