//! A game server on the machine of whoever programs its game, put together: one seat, its listeners, and a thread that
//! plays the rest of the world. Nothing of a cluster is needed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use berth_api::link::ServerUid;
use berth_runtime::clock::Clock;
use berth_runtime::error::chain;
use berth_runtime::tasks::TaskGroup;
use tokio::net::TcpListener;
use tracing::{debug, info};

use crate::metrics::{SdkMetrics, Transport};
use crate::seat::local::{Ground, LocalError};
use crate::seat::{Seat, Surroundings, Tray, keeper};
use crate::serve::Desk;
use crate::serve::accept::Acceptor;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("could not make the game server")]
    Server(#[from] LocalError),
    #[error("could not listen on {address}; is another SDK server running?")]
    Listen { address: SocketAddr, source: io::Error },
}

/// What is served.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) file: Option<PathBuf>,
    pub(crate) grpc_port: u16,
    pub(crate) http_port: u16,
}

impl Local {
    /// Begins to serve.
    pub(crate) async fn start(self, metrics: &SdkMetrics, tasks: &TaskGroup) -> Result<(), StartError> {
        let clock = Clock::system();
        let tray = Arc::new(Tray::default());
        let ground = Ground::new(self.file, Arc::clone(&tray), clock)?;
        let surroundings = Surroundings {
            clock,
            news: Arc::default(),
            tray,
            metrics: metrics.seats.clone(),
            listening_since: clock.instant().into_std(),
        };
        let seat = Seat::new(ServerUid("local".to_owned()), surroundings, tasks.token().child_token());
        for (transport, port) in [(Transport::Grpc, self.grpc_port), (Transport::Rest, self.http_port)] {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| StartError::Listen { address, source })?;
            let bound = listener.local_addr().unwrap_or(address);
            info!(?transport, address = %bound, "a local game server is served");
            listen(&seat, transport, listener, metrics, tasks);
            // Clients that prefer IPv6 find the same; a machine without it has none that do.
            match TcpListener::bind((Ipv6Addr::LOCALHOST, bound.port())).await {
                Ok(listener) => listen(&seat, transport, listener, metrics, tasks),
                Err(error) => debug!(?transport, error = %chain(&error), "not served over IPv6"),
            }
        }
        drop(tasks.spawner().spawn_child("keeper", keeper::keep(Arc::clone(&seat))));
        tasks.spawn("local", ground.run(seat, tasks.token()));
        Ok(())
    }
}

fn listen(
    seat: &Arc<Seat>,
    transport: Transport,
    listener: TcpListener,
    metrics: &SdkMetrics,
    tasks: &TaskGroup,
) {
    let acceptor = Acceptor {
        listener: Arc::new(listener),
        transport,
        desk: Desk::new(Arc::clone(seat), transport, metrics.serve.clone()),
        metrics: metrics.serve.clone(),
        spawner: tasks.spawner(),
    };
    drop(tasks.spawner().spawn_child("listener", acceptor.accept(tasks.token())));
}
