//! The service `agones.dev.sdk.alpha.SDK`, player tracking: its calls, and how gRPC makes them.

use berth_api::game_server::PlayersStatus;
use berth_api::sdk::alpha::sdk_server::{Sdk, SdkServer};
use berth_api::sdk::alpha::{Bool, Count, Empty, PlayerId, PlayerIdList};
use tonic::{Response, Status};

use super::{Desk, LARGEST_MESSAGE, status};
use crate::metrics::Call;
use crate::server::session::Session;
use crate::server::{Answer, Refusal, Request};

/// The service for gRPC.
pub(super) fn service(desk: Desk) -> SdkServer<Service> {
    SdkServer::new(Service { desk })
        .max_decoding_message_size(LARGEST_MESSAGE)
        .max_encoding_message_size(usize::MAX)
}

pub(super) async fn connect(desk: &Desk, player: String) -> Result<bool, Refusal> {
    changed(desk.ask(Call::PlayerConnect, Request::Connect { player }).await)
}

pub(super) async fn disconnect(desk: &Desk, player: String) -> Result<bool, Refusal> {
    changed(desk.ask(Call::PlayerDisconnect, Request::Disconnect { player }).await)
}

pub(super) async fn set_capacity(desk: &Desk, capacity: i64) -> Result<(), Refusal> {
    desk.ask(Call::SetPlayerCapacity, Request::PlayerCapacity { capacity }).await.map(drop)
}

pub(super) async fn capacity(desk: &Desk) -> Result<i64, Refusal> {
    Ok(desk.look(Call::GetPlayerCapacity, Session::players).await?.capacity)
}

pub(super) async fn count(desk: &Desk) -> Result<i64, Refusal> {
    let ids = ids(desk.look(Call::GetPlayerCount, Session::players).await?);
    Ok(i64::try_from(ids.len()).unwrap_or(i64::MAX))
}

pub(super) async fn is_connected(desk: &Desk, player: &str) -> Result<bool, Refusal> {
    let players = desk.look(Call::IsPlayerConnected, Session::players).await?;
    Ok(ids(players).iter().any(|id| id == player))
}

pub(super) async fn connected(desk: &Desk) -> Result<Vec<String>, Refusal> {
    Ok(ids(desk.look(Call::GetConnectedPlayers, Session::players).await?))
}

fn ids(players: PlayersStatus) -> Vec<String> {
    players.ids.unwrap_or_default()
}

fn changed(outcome: Result<Answer, Refusal>) -> Result<bool, Refusal> {
    outcome.map(|answer| answer == Answer::Changed(true))
}

/// Answers gRPC.
pub(super) struct Service {
    desk: Desk,
}

fn told<T, M>(outcome: Result<T, Refusal>, message: impl FnOnce(T) -> M) -> Result<Response<M>, Status> {
    outcome.map(|value| Response::new(message(value))).map_err(|refusal| status(&refusal))
}

#[tonic::async_trait]
impl Sdk for Service {
    async fn player_connect(&self, request: tonic::Request<PlayerId>) -> Result<Response<Bool>, Status> {
        told(connect(&self.desk, request.into_inner().player_id).await, |bool| Bool { bool })
    }

    async fn player_disconnect(&self, request: tonic::Request<PlayerId>) -> Result<Response<Bool>, Status> {
        told(disconnect(&self.desk, request.into_inner().player_id).await, |bool| Bool { bool })
    }

    async fn set_player_capacity(&self, request: tonic::Request<Count>) -> Result<Response<Empty>, Status> {
        told(set_capacity(&self.desk, request.into_inner().count).await, |()| Empty {})
    }

    async fn get_player_capacity(&self, _: tonic::Request<Empty>) -> Result<Response<Count>, Status> {
        told(capacity(&self.desk).await, |count| Count { count })
    }

    async fn get_player_count(&self, _: tonic::Request<Empty>) -> Result<Response<Count>, Status> {
        told(count(&self.desk).await, |count| Count { count })
    }

    async fn is_player_connected(&self, request: tonic::Request<PlayerId>) -> Result<Response<Bool>, Status> {
        told(is_connected(&self.desk, &request.into_inner().player_id).await, |bool| Bool { bool })
    }

    async fn get_connected_players(
        &self,
        _: tonic::Request<Empty>,
    ) -> Result<Response<PlayerIdList>, Status> {
        told(connected(&self.desk).await, |list| PlayerIdList { list })
    }
}
