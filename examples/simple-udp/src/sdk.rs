//! The game's end of the SDK protocol: connecting with patience, and the calls by their names.
//!
//! The connection is made once, eagerly, so that a game whose SDK server never comes up says so. After that the channel
//! reconnects by itself; streams do not, and [`crate::health`] and [`crate::watch`] open theirs again.

use std::time::Duration;

use berth_api::sdk::{alpha, beta, v1};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

/// How long one try to connect may take.
const CONNECT_TRY: Duration = Duration::from_secs(5);
/// The first wait between two tries, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a call may take. Streams have no limit.
const CALL: Duration = Duration::from_secs(10);

/// How long the game server may be without its host ports, which it has before its pod is made.
const PORTS_KNOWN: Duration = Duration::from_secs(60);

/// What went wrong between the game and its SDK server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SdkError {
    /// The host or port makes no address.
    #[error("{endpoint} is no address of an SDK server")]
    Address { endpoint: String, source: tonic::transport::Error },
    /// Nobody listens.
    #[error("could not reach the SDK server at {endpoint} within {limit:?}")]
    Unreachable { endpoint: String, limit: Duration, source: tonic::transport::Error },
    /// The server said no. The message is its own.
    #[error("{call}: {code:?}: {message}")]
    Refused { call: &'static str, code: Code, message: String },
    /// The server said nothing.
    #[error("{call}: no answer within {CALL:?}")]
    TooSlow { call: &'static str },
    /// The game server is without host ports.
    #[error("the game server shows no host port within {PORTS_KNOWN:?}")]
    NoPort,
}

/// The three services of one SDK server, on one connection.
#[derive(Debug, Clone)]
pub(crate) struct Sdk {
    stable: v1::sdk_client::SdkClient<Channel>,
    beta: beta::sdk_client::SdkClient<Channel>,
    alpha: alpha::sdk_client::SdkClient<Channel>,
}

impl Sdk {
    /// Connects, trying again until `limit` is over.
    pub(crate) async fn connect(endpoint: &str, limit: Duration) -> Result<Self, SdkError> {
        let address = Endpoint::from_shared(endpoint.to_owned())
            .map_err(|source| SdkError::Address { endpoint: endpoint.to_owned(), source })?
            .connect_timeout(CONNECT_TRY);
        let started = Instant::now();
        let mut wait = WAITS.0;
        let mut tries = 1;
        let channel = loop {
            match address.connect().await {
                Ok(channel) => break channel,
                Err(source) if started.elapsed() + wait > limit => {
                    return Err(SdkError::Unreachable { endpoint: endpoint.to_owned(), limit, source });
                }
                Err(_) => {
                    if tries == 1 {
                        println!("sdk not reachable yet endpoint={endpoint} limit={limit:?}");
                    }
                    tokio::time::sleep(wait).await;
                }
            }
            wait = (wait * 2).min(WAITS.1);
            tries += 1;
        };
        println!("sdk connected tries={tries} after_ms={}", started.elapsed().as_millis());
        Ok(Self {
            stable: v1::sdk_client::SdkClient::new(channel.clone()),
            beta: beta::sdk_client::SdkClient::new(channel.clone()),
            alpha: alpha::sdk_client::SdkClient::new(channel),
        })
    }

    pub(crate) async fn ready(&self) -> Result<(), SdkError> {
        call("Ready", self.stable.clone().ready(v1::Empty {})).await.map(drop)
    }

    pub(crate) async fn allocate(&self) -> Result<(), SdkError> {
        call("Allocate", self.stable.clone().allocate(v1::Empty {})).await.map(drop)
    }

    pub(crate) async fn shutdown(&self) -> Result<(), SdkError> {
        call("Shutdown", self.stable.clone().shutdown(v1::Empty {})).await.map(drop)
    }

    /// The protocol knows whole seconds; a fraction is rounded up, because zero would mean for ever.
    pub(crate) async fn reserve(&self, time: Duration) -> Result<(), SdkError> {
        let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        let seconds = i64::try_from(whole).unwrap_or(i64::MAX);
        call("Reserve", self.stable.clone().reserve(v1::Duration { seconds })).await.map(drop)
    }

    pub(crate) async fn set_label(&self, key: String, value: String) -> Result<(), SdkError> {
        call("SetLabel", self.stable.clone().set_label(v1::KeyValue { key, value })).await.map(drop)
    }

    pub(crate) async fn set_annotation(&self, key: String, value: String) -> Result<(), SdkError> {
        call("SetAnnotation", self.stable.clone().set_annotation(v1::KeyValue { key, value })).await.map(drop)
    }

    pub(crate) async fn game_server(&self) -> Result<v1::GameServer, SdkError> {
        call("GetGameServer", self.stable.clone().get_game_server(v1::Empty {})).await
    }

    /// Opens the stream of changes.
    pub(crate) async fn watch(&self) -> Result<Streaming<v1::GameServer>, SdkError> {
        call("WatchGameServer", self.stable.clone().watch_game_server(v1::Empty {})).await
    }

    /// The game server's first host port, once it is known.
    pub(crate) async fn first_port(&self) -> Result<u16, SdkError> {
        let search = async {
            let mut changes = self.watch().await?;
            while let Some(seen) =
                changes.message().await.map_err(|status| refused("WatchGameServer", &status))?
            {
                let ports = seen.status.map(|status| status.ports).unwrap_or_default();
                if let Some(port) = ports.first().and_then(|port| u16::try_from(port.port).ok()) {
                    return Ok(port);
                }
            }
            Err(SdkError::NoPort)
        };
        tokio::time::timeout(PORTS_KNOWN, search).await.unwrap_or(Err(SdkError::NoPort))
    }

    /// Sends pings until `pings` ends, and then hears the answer. It may take for ever, so it has no limit.
    pub(crate) async fn health(
        &self,
        pings: impl tokio_stream::Stream<Item = v1::Empty> + Send + 'static,
    ) -> Result<(), SdkError> {
        let answer = self.stable.clone().health(Request::new(pings)).await;
        answer.map(drop).map_err(|status| refused("Health", &status))
    }

    pub(crate) async fn counter(&self, name: String) -> Result<beta::Counter, SdkError> {
        call("GetCounter", self.beta.clone().get_counter(beta::GetCounterRequest { name })).await
    }

    pub(crate) async fn update_counter(
        &self,
        update: beta::CounterUpdateRequest,
    ) -> Result<beta::Counter, SdkError> {
        let request = beta::UpdateCounterRequest { counter_update_request: Some(update) };
        call("UpdateCounter", self.beta.clone().update_counter(request)).await
    }

    pub(crate) async fn list(&self, name: String) -> Result<beta::List, SdkError> {
        call("GetList", self.beta.clone().get_list(beta::GetListRequest { name })).await
    }

    pub(crate) async fn set_list_capacity(
        &self,
        name: String,
        capacity: i64,
    ) -> Result<beta::List, SdkError> {
        let request = beta::UpdateListRequest {
            list: Some(beta::List { name, capacity, values: Vec::new() }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["capacity".to_owned()] }),
        };
        call("UpdateList", self.beta.clone().update_list(request)).await
    }

    pub(crate) async fn append(&self, name: String, value: String) -> Result<beta::List, SdkError> {
        call("AddListValue", self.beta.clone().add_list_value(beta::AddListValueRequest { name, value }))
            .await
    }

    pub(crate) async fn delete(&self, name: String, value: String) -> Result<beta::List, SdkError> {
        let request = beta::RemoveListValueRequest { name, value };
        call("RemoveListValue", self.beta.clone().remove_list_value(request)).await
    }

    pub(crate) async fn connect_player(&self, player_id: String) -> Result<bool, SdkError> {
        let player = alpha::PlayerId { player_id };
        call("PlayerConnect", self.alpha.clone().player_connect(player)).await.map(|answer| answer.bool)
    }

    pub(crate) async fn disconnect_player(&self, player_id: String) -> Result<bool, SdkError> {
        let player = alpha::PlayerId { player_id };
        call("PlayerDisconnect", self.alpha.clone().player_disconnect(player)).await.map(|answer| answer.bool)
    }

    pub(crate) async fn is_player_connected(&self, player_id: String) -> Result<bool, SdkError> {
        let player = alpha::PlayerId { player_id };
        call("IsPlayerConnected", self.alpha.clone().is_player_connected(player))
            .await
            .map(|answer| answer.bool)
    }

    pub(crate) async fn players(&self) -> Result<Vec<String>, SdkError> {
        call("GetConnectedPlayers", self.alpha.clone().get_connected_players(alpha::Empty {}))
            .await
            .map(|answer| answer.list)
    }

    pub(crate) async fn player_count(&self) -> Result<i64, SdkError> {
        call("GetPlayerCount", self.alpha.clone().get_player_count(alpha::Empty {}))
            .await
            .map(|answer| answer.count)
    }

    pub(crate) async fn player_capacity(&self) -> Result<i64, SdkError> {
        call("GetPlayerCapacity", self.alpha.clone().get_player_capacity(alpha::Empty {}))
            .await
            .map(|answer| answer.count)
    }

    pub(crate) async fn set_player_capacity(&self, count: i64) -> Result<(), SdkError> {
        call("SetPlayerCapacity", self.alpha.clone().set_player_capacity(alpha::Count { count }))
            .await
            .map(drop)
    }
}

async fn call<T>(
    name: &'static str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, SdkError> {
    match tokio::time::timeout(CALL, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(refused(name, &status)),
        Err(_) => Err(SdkError::TooSlow { call: name }),
    }
}

/// The status in words; its own `Display` repeats headers that say nothing to a player.
pub(crate) fn refused(call: &'static str, status: &Status) -> SdkError {
    SdkError::Refused { call, code: status.code(), message: status.message().to_owned() }
}
