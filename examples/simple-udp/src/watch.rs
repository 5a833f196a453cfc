//! The task that watches the game server once somebody wants it: logs each change, and publishes the state.

use std::time::Duration;

use berth_api::sdk::v1::GameServer;
use tokio::sync::watch;

use crate::sdk::{Sdk, SdkError, refused};

/// How long to wait before a stream that ended is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// Watches for as long as the game lives, from the moment that `wanted` is true.
pub(crate) async fn keep(sdk: Sdk, mut wanted: watch::Receiver<bool>, state: watch::Sender<String>) {
    if wanted.wait_for(|wanted| *wanted).await.is_err() {
        return;
    }
    loop {
        match follow(&sdk, &state).await {
            Ok(()) => println!("watch ended by the server; opening it again"),
            Err(error) => println!("watch broken; opening it again error={error}"),
        }
        tokio::time::sleep(REOPEN).await;
    }
}

async fn follow(sdk: &Sdk, state: &watch::Sender<String>) -> Result<(), SdkError> {
    let mut changes = sdk.watch().await?;
    while let Some(seen) = changes.message().await.map_err(|status| refused("WatchGameServer", &status))? {
        println!("{}", line(&seen));
        state.send_replace(seen.status.map(|status| status.state).unwrap_or_default());
    }
    Ok(())
}

fn line(seen: &GameServer) -> String {
    let (name, version) = seen
        .object_meta
        .as_ref()
        .map_or(("", ""), |meta| (meta.name.as_str(), meta.resource_version.as_str()));
    let status = seen.status.clone().unwrap_or_default();
    let ports = status.ports.iter().map(|port| format!("{}:{}", port.name, port.port)).collect::<Vec<_>>();
    format!(
        "watch game_server={name} state={} address={} ports={} resource_version={version}",
        status.state,
        status.address,
        ports.join(",")
    )
}

#[cfg(test)]
mod tests {
    use berth_api::sdk::v1::game_server::{ObjectMeta, Status, status::Port};

    use super::*;

    #[test]
    fn a_change_is_one_line() {
        let seen = GameServer {
            object_meta: Some(ObjectMeta {
                name: "lobby".to_owned(),
                resource_version: "7".to_owned(),
                ..ObjectMeta::default()
            }),
            spec: None,
            status: Some(Status {
                state: "Ready".to_owned(),
                address: "192.0.2.1".to_owned(),
                ports: vec![Port { name: "default".to_owned(), port: 7001 }],
                ..Status::default()
            }),
        };
        assert_eq!(
            line(&seen),
            "watch game_server=lobby state=Ready address=192.0.2.1 ports=default:7001 resource_version=7"
        );
        assert_eq!(
            line(&GameServer::default()),
            "watch game_server= state= address= ports= resource_version="
        );
    }
}
