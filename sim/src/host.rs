//! The machine that the gateway runs on: one life of it after the other, each the real thing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin_core::limits::Limits;
use rejoin_core::settings::Settings;
use rejoin_gateway::config::GatewayConfig;
use rejoin_gateway::gateway::Gateway;
use rejoin_gateway::listen;
use rejoin_gateway::upstream::Upstream;
use rejoin_gateway::upstream::service::{ServiceOptions, ServiceUpstream, ServiceUpstreamError};
use tokio::task::JoinHandle;

use crate::child::Children;
use crate::disk::Disk;
use crate::history::{History, What};
use crate::net::Net;
use crate::web::Web;

/// Unix time at the beginning of a run: 2026-11-30, in milliseconds.
const BEGAN_MS: u64 = 1_796_000_000_000;

/// Connections that are still open so long after the streams ended are cut.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// What stands behind the gateway.
#[derive(Clone)]
pub enum Behind {
    Children(Children),
    Web(Web),
}

impl Behind {
    /// As the gateway's next life sees it.
    fn connect(&self, limits: &Limits) -> Result<Arc<dyn Upstream>, ServiceUpstreamError> {
        match self {
            Self::Children(children) => Ok(Arc::new(children.clone())),
            Self::Web(web) => {
                let mut options = ServiceOptions::new(Arc::new(limits.clone()));
                options.name = "simulated".to_owned();
                options.outlives_process = true;
                Ok(Arc::new(ServiceUpstream::new(web.connect(), "/mcp", options)?))
            }
        }
    }

    fn gateway_died(&self) {
        if let Self::Children(children) = self {
            children.die();
        }
    }

    /// How many servers of the gateway's own live.
    fn living(&self) -> usize {
        match self {
            Self::Children(children) => children.living(),
            Self::Web(_) => 0,
        }
    }

    /// What runs ends, and sessions are forgotten.
    pub fn die(&self) {
        match self {
            Self::Children(children) => children.die(),
            Self::Web(web) => web.forget(),
        }
    }

    /// Its connections break, if there are any.
    pub fn cut(&self) {
        if let Self::Web(web) = self {
            web.cut();
        }
    }

    /// It cannot be reached meanwhile, if there is a way to it.
    pub fn leave(&self, is_away: bool) {
        if let Self::Web(web) = self {
            web.leave(is_away);
        }
    }
}

/// What a gateway runs on.
pub struct Host {
    pub settings: Settings,
    pub net: Net,
    pub disk: Disk,
    pub behind: Behind,
    pub history: History,
    /// The file of the wall clock; `None`: the machine's own.
    pub clock: Option<File>,
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    number: u32,
    /// How far the wall clock is off, in milliseconds.
    skew_ms: i64,
    tasks: Vec<JoinHandle<()>>,
    gateway: Option<Gateway>,
}

impl Host {
    pub fn new(
        settings: Settings,
        net: Net,
        disk: Disk,
        behind: Behind,
        history: History,
        clock: Option<File>,
    ) -> Self {
        let life = Mutex::default();
        Self { settings, net, disk, behind, history, clock, life }
    }

    /// Sets the wall clock, which a gateway reads once, when it starts.
    fn set_clock(&self, skew_ms: i64) -> io::Result<()> {
        let now_ms = (BEGAN_MS + self.history.now_ms()).saturating_add_signed(skew_ms);
        match &self.clock {
            Some(file) => file.write_all_at(&now_ms.to_ne_bytes(), 0),
            None => Ok(()),
        }
    }

    /// Starts the gateway on what an earlier life has left. The wall clock has moved by
    /// `clock_jump_ms` beside the time that passed.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub async fn start(&self, clock_jump_ms: i64) -> Result<(), Box<dyn std::error::Error>> {
        let (number, skew_ms) = {
            let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
            life.number += 1;
            life.skew_ms += clock_jump_ms;
            (life.number, life.skew_ms)
        };
        self.set_clock(skew_ms)?;
        let settings = Arc::new(self.settings.clone());
        let upstream = self.behind.connect(&settings.limits)?;
        let gateway = Gateway::new(GatewayConfig::new(settings, upstream, self.disk.open()))?;
        Gateway::recover(std::slice::from_ref(&gateway)).await?;
        let door = self.net.open();
        self.history.record(What::Started { life: number, skew_ms });
        let (answering, answering_until) = (gateway.clone(), gateway.clone());
        let keeping = gateway.clone();
        let limits = self.settings.limits.clone();
        let serving = tokio::spawn(async move {
            let service = move |request| {
                let gateway = answering.clone();
                async move { gateway.handle(request).await }
            };
            let stopping = answering_until.stopping();
            listen::serve(door, &limits, service, stopping, CLOSING_MAX).await;
        });
        let keeping = tokio::spawn(async move { keeping.maintain().await });
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        life.tasks = vec![serving, keeping];
        life.gateway = Some(gateway);
        Ok(())
    }

    /// Ends the gateway in order, as `rejoin serve` does at SIGTERM: it drains, what serves and
    /// what keeps house end by themselves, and then the process does.
    pub async fn end(&self) {
        let (life, gateway, tasks) = {
            let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
            (life.number, life.gateway.take(), std::mem::take(&mut life.tasks))
        };
        self.history.record(What::Draining { life });
        if let Some(gateway) = gateway {
            gateway.drain().await;
        }
        for task in tasks {
            // A task that failed has said so.
            let _ended = task.await.is_ok();
        }
        let left = self.behind.living();
        self.history.record(What::Drained { life, left });
        self.disk.kill();
        self.net.kill(false);
        if left > 0 {
            self.behind.gateway_died();
        }
    }

    /// Kills the gateway. Whatever still runs of it reaches neither disk nor network any more.
    pub fn kill(&self, with_host: bool) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        self.history.record(What::Crashed { life: life.number });
        self.disk.kill();
        self.net.kill(with_host);
        self.behind.gateway_died();
        for task in life.tasks.drain(..) {
            task.abort();
        }
    }
}
