//! The gateway's calls that have one answer, and its pings: from a body to a request, and from its outcome to JSON.

use berth_api::sdk::beta::{AddListValueRequest, RemoveListValueRequest};

use super::failure::Failure;
use super::json::{self, JsonError};
use super::route::{Target, mask_in_query};
use super::{Desk, alpha, beta};
use crate::metrics::Call;
use crate::server::Request;
use tonic::Code;

/// Bytes of a stream of pings that may wait for the end of one ping.
const LARGEST_PING: usize = 64 * 1024;

/// Whether a call reads the body of its request.
pub(super) fn has_body(call: Call) -> bool {
    match call {
        Call::GetGameServer
        | Call::WatchGameServer
        | Call::GetCounter
        | Call::GetList
        | Call::GetPlayerCapacity
        | Call::GetPlayerCount
        | Call::IsPlayerConnected
        | Call::GetConnectedPlayers
        | Call::Unknown => false,
        Call::Ready
        | Call::Allocate
        | Call::Shutdown
        | Call::Health
        | Call::SetLabel
        | Call::SetAnnotation
        | Call::Reserve
        | Call::UpdateCounter
        | Call::UpdateList
        | Call::AddListValue
        | Call::RemoveListValue
        | Call::PlayerConnect
        | Call::PlayerDisconnect
        | Call::SetPlayerCapacity => true,
    }
}

/// Makes a call that has one answer.
pub(super) async fn serve(
    desk: &Desk,
    target: &Target,
    query: Option<&str>,
    body: &[u8],
) -> Result<String, Failure> {
    let (call, name) = (target.call, || target.name.clone());
    // What cannot be read never becomes a call; it is counted as one all the same.
    let unreadable = |error: JsonError| {
        desk.ended(call, Code::InvalidArgument);
        Failure::from(error)
    };
    let request = match call {
        Call::Ready => json::object(body).map(|_| Request::Ready),
        Call::Allocate => json::object(body).map(|_| Request::Allocate),
        Call::Shutdown => json::object(body).map(|_| Request::Shutdown),
        Call::Reserve => json::duration(body).map(|length| Request::Reserve { seconds: length.seconds }),
        Call::SetLabel => {
            json::key_value(body).map(|pair| Request::Label { key: pair.key, value: pair.value })
        }
        Call::SetAnnotation => {
            json::key_value(body).map(|pair| Request::Annotation { key: pair.key, value: pair.value })
        }
        Call::GetCounter => return Ok(json::counter(&beta::get_counter(desk, &target.name).await?)),
        Call::UpdateCounter => {
            let asked = json::counter_update(body, name()).map_err(unreadable)?;
            return Ok(json::counter(&beta::update_counter(desk, asked).await?));
        }
        Call::GetList => return Ok(json::list(&beta::get_list(desk, &target.name).await?)),
        Call::UpdateList => {
            let mask = query.and_then(mask_in_query);
            let asked = json::list_update(body, name(), mask).map_err(unreadable)?;
            return Ok(json::list(&beta::update_list(desk, asked).await?));
        }
        Call::AddListValue => {
            let asked =
                AddListValueRequest { name: name(), value: json::text(body, "value").map_err(unreadable)? };
            return Ok(json::list(&beta::add_list_value(desk, asked).await?));
        }
        Call::RemoveListValue => {
            let asked = RemoveListValueRequest {
                name: name(),
                value: json::text(body, "value").map_err(unreadable)?,
            };
            return Ok(json::list(&beta::remove_list_value(desk, asked).await?));
        }
        Call::PlayerConnect => {
            let player = json::text(body, "playerID").map_err(unreadable)?;
            return Ok(json::bool(alpha::connect(desk, player).await?));
        }
        Call::PlayerDisconnect => {
            let player = json::text(body, "playerID").map_err(unreadable)?;
            return Ok(json::bool(alpha::disconnect(desk, player).await?));
        }
        Call::SetPlayerCapacity => {
            let capacity = json::number(body, "count").map_err(unreadable)?;
            alpha::set_capacity(desk, capacity).await?;
            return Ok(json::EMPTY.to_owned());
        }
        Call::GetPlayerCapacity => return Ok(json::count(alpha::capacity(desk).await?)),
        Call::GetPlayerCount => return Ok(json::count(alpha::count(desk).await?)),
        Call::IsPlayerConnected => {
            return Ok(json::bool(alpha::is_connected(desk, &target.name).await?));
        }
        Call::GetConnectedPlayers => return Ok(json::players(&alpha::connected(desk).await?)),
        // The streams are answered elsewhere; a server is what they would begin with.
        Call::GetGameServer | Call::WatchGameServer | Call::Health | Call::Unknown => {
            return Ok(json::game_server(&*desk.game_server().await?));
        }
    };
    desk.ask(call, request.map_err(unreadable)?).await?;
    Ok(json::EMPTY.to_owned())
}

/// Counts pings in what a client sent; the rest waits for more.
pub(super) fn take_pings_from(desk: &Desk, bytes: &mut Vec<u8>) -> Result<(), Failure> {
    loop {
        let count = json::take_objects(bytes)?;
        if count == 0 {
            break;
        }
        (0..count).for_each(|_| desk.seat.ping());
    }
    if bytes.len() > LARGEST_PING {
        let message = format!("a ping of more than {LARGEST_PING} bytes");
        return Err(Failure { code: Code::ResourceExhausted, message });
    }
    Ok(())
}
