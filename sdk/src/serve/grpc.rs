//! The services of a game's gRPC port, and the stable one of them, `agones.dev.sdk.SDK`.

use std::pin::Pin;
use std::sync::Arc;

use berth_api::sdk::v1::sdk_server::{Sdk, SdkServer};
use berth_api::sdk::v1::{Duration, Empty, GameServer, KeyValue};
use futures::{Stream, StreamExt};
use tokio_stream::wrappers::WatchStream;
use tonic::service::Routes;
use tonic::{Code, Response, Status, Streaming};

use super::{Desk, LARGEST_MESSAGE, alpha, beta, status};
use crate::metrics::Call;
use crate::server::{Refusal, Request};

/// The services that a game finds at its gRPC port.
pub(super) fn routes(desk: Desk) -> Routes {
    let sdk = SdkServer::new(Service { desk: desk.clone() })
        .max_decoding_message_size(LARGEST_MESSAGE)
        // What is sent is bounded by what the API server stores.
        .max_encoding_message_size(usize::MAX);
    Routes::new(sdk).add_service(beta::service(desk.clone())).add_service(alpha::service(desk)).prepare()
}

struct Service {
    desk: Desk,
}

impl Service {
    async fn ask(&self, call: Call, request: Request) -> Result<Response<Empty>, Status> {
        self.desk.ask(call, request).await.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(Empty {}))
    }

    /// Takes pings until the client ends the stream.
    async fn take_pings(&self, mut pings: Streaming<Empty>) -> Result<(), Status> {
        loop {
            tokio::select! {
                biased;
                () = self.desk.seat.gone().cancelled() => return Err(status(&Refusal::Gone)),
                ping = pings.message() => match ping? {
                    Some(Empty {}) => self.desk.seat.ping(),
                    None => return Ok(()),
                },
            }
        }
    }
}

#[tonic::async_trait]
impl Sdk for Service {
    async fn ready(&self, _: tonic::Request<Empty>) -> Result<Response<Empty>, Status> {
        self.ask(Call::Ready, Request::Ready).await
    }

    async fn allocate(&self, _: tonic::Request<Empty>) -> Result<Response<Empty>, Status> {
        self.ask(Call::Allocate, Request::Allocate).await
    }

    async fn shutdown(&self, _: tonic::Request<Empty>) -> Result<Response<Empty>, Status> {
        self.ask(Call::Shutdown, Request::Shutdown).await
    }

    async fn health(&self, request: tonic::Request<Streaming<Empty>>) -> Result<Response<Empty>, Status> {
        let ended = self.take_pings(request.into_inner()).await;
        self.desk.ended(Call::Health, ended.as_ref().map_or_else(Status::code, |()| Code::Ok));
        ended.map(|()| Response::new(Empty {}))
    }

    async fn get_game_server(&self, _: tonic::Request<Empty>) -> Result<Response<GameServer>, Status> {
        let shown = self.desk.game_server().await.map_err(|refusal| status(&refusal))?;
        Ok(Response::new(GameServer::clone(&shown)))
    }

    type WatchGameServerStream = Pin<Box<dyn Stream<Item = Result<GameServer, Status>> + Send>>;

    async fn watch_game_server(
        &self,
        _: tonic::Request<Empty>,
    ) -> Result<Response<Self::WatchGameServerStream>, Status> {
        let messages = shown(&self.desk).map(|shown| Ok(GameServer::clone(&shown)));
        Ok(Response::new(Box::pin(messages)))
    }

    async fn set_label(&self, request: tonic::Request<KeyValue>) -> Result<Response<Empty>, Status> {
        let KeyValue { key, value } = request.into_inner();
        self.ask(Call::SetLabel, Request::Label { key, value }).await
    }

    async fn set_annotation(&self, request: tonic::Request<KeyValue>) -> Result<Response<Empty>, Status> {
        let KeyValue { key, value } = request.into_inner();
        self.ask(Call::SetAnnotation, Request::Annotation { key, value }).await
    }

    async fn reserve(&self, request: tonic::Request<Duration>) -> Result<Response<Empty>, Status> {
        let Duration { seconds } = request.into_inner();
        self.ask(Call::Reserve, Request::Reserve { seconds }).await
    }
}

/// The server as it is now, then whenever it changes, until it is gone.
///
/// The stream is asked for a message only when the client can take one, and gives the newest then: a slow reader misses
/// what is out of date, and nobody waits for it.
pub(super) fn shown(desk: &Desk) -> impl Stream<Item = Arc<GameServer>> + Send + 'static {
    let seat = Arc::clone(&desk.seat);
    let counted = CountedStream { desk: desk.clone() };
    WatchStream::new(seat.watch())
        .filter_map(|shown| async move { shown })
        .take_until(seat.gone().clone().cancelled_owned())
        .map(move |shown| {
            let _ = &counted;
            shown
        })
}

/// Counts a watch when it ends, by whichever side.
struct CountedStream {
    desk: Desk,
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.desk.ended(Call::WatchGameServer, Code::Ok);
    }
}
