//! Who may ask the allocator service: callers with a certificate, and, where that is turned on, ServiceAccounts with a
//! token of theirs.
//!
//! Certificates are the business of the connection: whoever has shown one is trusted with every namespace. A token is
//! reviewed by the API server, and so is what its account may do: create `gameserverallocations` in the namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::kube_client::{CallError, within};
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;
use tonic::Status;

use super::authorization::{Authorizer, Verdict};
use super::front_proxy::User;
use super::listen::Caller;

/// How long a token is believed after a review: as the API server itself has it.
const MEMORY: Duration = Duration::from_secs(10);
/// How long a review may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Tokens that are remembered; more are not worth the room.
const REMEMBERED: usize = 1024;
/// Reviews at a time: strangers cannot bring more than these before the API server.
const AT_ONCE: usize = 16;

/// Lets callers in.
#[derive(Clone)]
pub struct Gate {
    /// Absent: certificates alone decide, or nothing does.
    accounts: Option<Accounts>,
}

/// Knows ServiceAccounts by their tokens.
#[derive(Clone)]
struct Accounts {
    client: Client,
    audience: String,
    authorizer: Authorizer,
    /// Guards what is remembered; held for a look-up.
    known: Arc<Mutex<HashMap<String, (User, Instant)>>>,
    reviews: Arc<Semaphore>,
    clock: Clock,
}

/// Somebody who has been let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// May allocate everywhere.
    Trusted,
    /// May allocate where the cluster's rules let it.
    Account(User),
}

impl Gate {
    /// Lets in whomever the connection lets in.
    pub fn of_connections() -> Self {
        Self { accounts: None }
    }

    /// Lets in callers with a certificate, and accounts by tokens of this audience.
    pub fn of_accounts(client: Client, audience: String) -> Self {
        let accounts = Accounts {
            authorizer: Authorizer::new(client.clone()),
            client,
            audience,
            known: Arc::default(),
            reviews: Arc::new(Semaphore::new(AT_ONCE)),
            clock: Clock::system(),
        };
        Self { accounts: Some(accounts) }
    }

    /// Whether somebody is let in.
    pub(super) async fn let_in(&self, caller: &Caller, headers: &HeaderMap) -> Result<Visitor, Status> {
        let Some(accounts) = &self.accounts else { return Ok(Visitor::Trusted) };
        if caller.subject.is_some() {
            return Ok(Visitor::Trusted);
        }
        let Some(token) = bearer(headers) else {
            return Err(Status::unauthenticated(
                "show a client certificate, or a ServiceAccount's token as `authorization: Bearer TOKEN`",
            ));
        };
        accounts.whose(token).await?.map(Visitor::Account).ok_or_else(|| {
            Status::unauthenticated(format!(
                "the token is not one that this cluster has issued for the audience {:?}, or is too old",
                accounts.audience
            ))
        })
    }

    /// Whether somebody who has been let in may allocate in this namespace.
    pub(super) async fn admit(&self, visitor: &Visitor, namespace: &str) -> Result<(), Status> {
        let (Some(accounts), Visitor::Account(user)) = (&self.accounts, visitor) else { return Ok(()) };
        match accounts.authorizer.may_allocate(user, namespace).await {
            Ok(Verdict::Allowed) => Ok(()),
            Ok(Verdict::Denied(reason)) => Err(Status::permission_denied(format!(
                "{} may not create gameserverallocations in the namespace {namespace:?}{}{reason}",
                user.name,
                if reason.is_empty() { "" } else { ": " },
            ))),
            Err(error) => Err(unknown(&error)),
        }
    }
}

impl Accounts {
    /// Whose token it is; `None` where it is nobody's.
    async fn whose(&self, token: &str) -> Result<Option<User>, Status> {
        if let Some(user) = self.recall(token) {
            return Ok(Some(user));
        }
        let Ok(_turn) = self.reviews.acquire().await else { return Err(Status::unavailable("stopping")) };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![self.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = within(LIMIT, reviews.create(&PostParams::default(), &review)).await;
        let status = answer.map_err(|error| unknown(&error))?.status.unwrap_or_default();
        let user = user_of(status, &self.audience);
        if let Some(user) = &user {
            self.remember(token, user.clone());
        }
        Ok(user)
    }

    fn recall(&self, token: &str) -> Option<User> {
        let now = self.clock.instant();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(token).filter(|(_, until)| now < *until).map(|(user, _)| user.clone())
    }

    fn remember(&self, token: &str, user: User) {
        let now = self.clock.instant();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < REMEMBERED {
            known.insert(token.to_owned(), (user, now + MEMORY));
        }
    }
}

fn unknown(error: &CallError) -> Status {
    Status::unavailable(format!("whether you may allocate could not be asked: {}", chain(error)))
}

/// A reviewer that knows nothing of audiences names none, and has then not looked at ours.
fn user_of(status: TokenReviewStatus, audience: &str) -> Option<User> {
    let is_ours = status.audiences.unwrap_or_default().iter().any(|named| named == audience);
    let user = status.user.filter(|_| is_ours && status.authenticated == Some(true))?;
    Some(User {
        name: user.username.filter(|name| !name.is_empty())?,
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default().into_iter().collect(),
    })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn a_token_follows_its_scheme() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer", None),
            ("Bearer  ", None),
            ("Basic abc", None),
        ] {
            let headers =
                HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(header).unwrap())]);
            assert_eq!(bearer(&headers), token, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_token_for_somebody_else_is_nobodys() {
        let status = |authenticated, audiences: &[&str], name: &str| TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(audiences.iter().map(|audience| (*audience).to_owned()).collect()),
            user: Some(UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }),
            ..TokenReviewStatus::default()
        };
        let name = |status| user_of(status, "berth").map(|user| user.name);
        assert_eq!(name(status(true, &["berth"], "ann")).as_deref(), Some("ann"));
        assert_eq!(name(status(false, &["berth"], "ann")), None);
        assert_eq!(name(status(true, &["api"], "ann")), None);
        assert_eq!(name(status(true, &[], "ann")), None);
        assert_eq!(name(status(true, &["berth"], "")), None);
    }
}
