//! The service `agones.dev.sdk.beta.SDK`, counters and lists: its calls, and how gRPC makes them.

use berth_api::game_server;
use berth_api::game_server::counters::CounterChange;
use berth_api::game_server::lists::ListError;
use berth_api::sdk::beta::sdk_server::{Sdk, SdkServer};
use berth_api::sdk::beta::{
    AddListValueRequest, Counter, CounterUpdateRequest, GetCounterRequest, GetListRequest, List,
    RemoveListValueRequest, UpdateCounterRequest, UpdateListRequest,
};
use tonic::{Response, Status};

use super::{Desk, LARGEST_MESSAGE, code, status};
use crate::metrics::Call;
use crate::server::{Answer, Refusal, Request};

/// The service for gRPC.
pub(super) fn service(desk: Desk) -> SdkServer<Service> {
    SdkServer::new(Service { desk })
        .max_decoding_message_size(LARGEST_MESSAGE)
        .max_encoding_message_size(usize::MAX)
}

pub(super) async fn get_counter(desk: &Desk, name: &str) -> Result<Counter, Refusal> {
    let counter = desk.look(Call::GetCounter, |session| session.counter(name)).await?;
    Ok(shown_counter(name.to_owned(), &counter))
}

pub(super) async fn update_counter(desk: &Desk, asked: CounterUpdateRequest) -> Result<Counter, Refusal> {
    let CounterUpdateRequest { name, count, capacity, count_diff } = asked;
    let by = CounterChange { capacity, count, diff: count_diff };
    let answer = desk.ask(Call::UpdateCounter, Request::Counter { name: name.clone(), by }).await?;
    Ok(match answer {
        Answer::Counter(counter) => shown_counter(name, &counter),
        Answer::Done | Answer::List(_) | Answer::Changed(_) => Counter { name, ..Counter::default() },
    })
}

pub(super) async fn get_list(desk: &Desk, name: &str) -> Result<List, Refusal> {
    let list = desk.look(Call::GetList, |session| session.list(name)).await?;
    Ok(shown_list(name.to_owned(), list))
}

/// Changes what the mask names; what it names and the list does not give is cleared.
pub(super) async fn update_list(desk: &Desk, asked: UpdateListRequest) -> Result<List, Refusal> {
    let Masked { name, capacity, values } = masked(asked).map_err(|error| {
        let refusal = Refusal::List(error);
        desk.ended(Call::UpdateList, code(&refusal));
        refusal
    })?;
    if capacity.is_none() && values.is_none() {
        let list = desk.look(Call::UpdateList, |session| session.list(&name)).await?;
        return Ok(shown_list(name, list));
    }
    let request = Request::UpdateList { name: name.clone(), capacity, values };
    change_list(desk, Call::UpdateList, name, request).await
}

pub(super) async fn add_list_value(desk: &Desk, asked: AddListValueRequest) -> Result<List, Refusal> {
    let AddListValueRequest { name, value } = asked;
    let request = Request::AddToList { name: name.clone(), value };
    change_list(desk, Call::AddListValue, name, request).await
}

pub(super) async fn remove_list_value(desk: &Desk, asked: RemoveListValueRequest) -> Result<List, Refusal> {
    let RemoveListValueRequest { name, value } = asked;
    let request = Request::RemoveFromList { name: name.clone(), value };
    change_list(desk, Call::RemoveListValue, name, request).await
}

async fn change_list(desk: &Desk, call: Call, name: String, request: Request) -> Result<List, Refusal> {
    Ok(match desk.ask(call, request).await? {
        Answer::List(list) => shown_list(name, list),
        Answer::Done | Answer::Counter(_) | Answer::Changed(_) => List { name, ..List::default() },
    })
}

/// What an update is about.
struct Masked {
    name: String,
    capacity: Option<i64>,
    values: Option<Vec<String>>,
}

fn masked(asked: UpdateListRequest) -> Result<Masked, ListError> {
    let (Some(list), Some(mask)) = (asked.list, asked.update_mask) else { return Err(ListError::Nothing) };
    let (mut capacity, mut values) = (None, None);
    for path in mask.paths {
        match path.as_str() {
            "name" => {}
            "capacity" => capacity = Some(list.capacity),
            "values" => values = Some(list.values.clone()),
            _ => return Err(ListError::Mask { path: path.chars().take(64).collect() }),
        }
    }
    Ok(Masked { name: list.name, capacity, values })
}

fn shown_counter(name: String, counter: &game_server::Counter) -> Counter {
    let (count, capacity) = (counter.count.unwrap_or_default(), counter.capacity.unwrap_or_default());
    Counter { name, count, capacity }
}

fn shown_list(name: String, list: game_server::List) -> List {
    List { name, capacity: list.capacity.unwrap_or_default(), values: list.values.unwrap_or_default() }
}

/// Answers gRPC.
pub(super) struct Service {
    desk: Desk,
}

fn answer<T>(outcome: Result<T, Refusal>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|refusal| status(&refusal))
}

#[tonic::async_trait]
impl Sdk for Service {
    async fn get_counter(
        &self,
        request: tonic::Request<GetCounterRequest>,
    ) -> Result<Response<Counter>, Status> {
        answer(get_counter(&self.desk, &request.into_inner().name).await)
    }

    async fn update_counter(
        &self,
        request: tonic::Request<UpdateCounterRequest>,
    ) -> Result<Response<Counter>, Status> {
        // Without an inner request there is nothing to do and nobody to do it to.
        let asked = request.into_inner().counter_update_request.unwrap_or_default();
        answer(update_counter(&self.desk, asked).await)
    }

    async fn get_list(&self, request: tonic::Request<GetListRequest>) -> Result<Response<List>, Status> {
        answer(get_list(&self.desk, &request.into_inner().name).await)
    }

    async fn update_list(
        &self,
        request: tonic::Request<UpdateListRequest>,
    ) -> Result<Response<List>, Status> {
        answer(update_list(&self.desk, request.into_inner()).await)
    }

    async fn add_list_value(
        &self,
        request: tonic::Request<AddListValueRequest>,
    ) -> Result<Response<List>, Status> {
        answer(add_list_value(&self.desk, request.into_inner()).await)
    }

    async fn remove_list_value(
        &self,
        request: tonic::Request<RemoveListValueRequest>,
    ) -> Result<Response<List>, Status> {
        answer(remove_list_value(&self.desk, request.into_inner()).await)
    }
}
