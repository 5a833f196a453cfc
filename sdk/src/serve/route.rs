//! Which call a path and a method mean. Pure.

use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use crate::metrics::Call;

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Call(Target),
    /// Nothing is there.
    NoSuchPath,
    /// Something is there, for another method.
    NoSuchMethod,
}

/// A call, and what its path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) call: Call,
    /// A counter, a list or a player; empty where the path names nothing.
    pub(super) name: String,
}

/// Every route. `{}` stands for one part of a path, which names something.
const ROUTES: [(&str, Method, Call); 22] = [
    ("/ready", Method::POST, Call::Ready),
    ("/allocate", Method::POST, Call::Allocate),
    ("/shutdown", Method::POST, Call::Shutdown),
    ("/health", Method::POST, Call::Health),
    ("/gameserver", Method::GET, Call::GetGameServer),
    ("/watch/gameserver", Method::GET, Call::WatchGameServer),
    ("/metadata/label", Method::PUT, Call::SetLabel),
    ("/metadata/annotation", Method::PUT, Call::SetAnnotation),
    ("/reserve", Method::POST, Call::Reserve),
    ("/v1beta1/counters/{}", Method::GET, Call::GetCounter),
    ("/v1beta1/counters/{}", Method::PATCH, Call::UpdateCounter),
    ("/v1beta1/lists/{}", Method::GET, Call::GetList),
    ("/v1beta1/lists/{}", Method::PATCH, Call::UpdateList),
    ("/v1beta1/lists/{}:addValue", Method::POST, Call::AddListValue),
    ("/v1beta1/lists/{}:removeValue", Method::POST, Call::RemoveListValue),
    ("/alpha/player/connect", Method::POST, Call::PlayerConnect),
    ("/alpha/player/disconnect", Method::POST, Call::PlayerDisconnect),
    ("/alpha/player/capacity", Method::PUT, Call::SetPlayerCapacity),
    ("/alpha/player/capacity", Method::GET, Call::GetPlayerCapacity),
    ("/alpha/player/count", Method::GET, Call::GetPlayerCount),
    ("/alpha/player/connected/{}", Method::GET, Call::IsPlayerConnected),
    ("/alpha/player/connected", Method::GET, Call::GetConnectedPlayers),
];

const METHOD_OVERRIDE: &str = "x-http-method-override";

/// The path whose requests must have a body, whatever their method.
pub(super) const HEALTH: &str = "/health";

/// The call that a request means. A form may be posted to a path that is only read from, and may name another method.
pub(super) fn find(method: &Method, path: &str, headers: &HeaderMap) -> Found {
    let is_form = *method == Method::POST && is_form(headers);
    let named = headers.get(METHOD_OVERRIDE).and_then(|named| Method::from_bytes(named.as_bytes()).ok());
    let method = named.filter(|_| is_form).unwrap_or_else(|| method.clone());
    let at_path = || {
        ROUTES.iter().filter_map(|(pattern, wanted, call)| {
            named_in(pattern, path).map(|name| (wanted, Target { call: *call, name }))
        })
    };
    let by = |method: &Method| at_path().find(|(wanted, _)| *wanted == method).map(|(_, target)| target);
    if let Some(target) = by(&method) {
        return Found::Call(target);
    }
    match by(&Method::GET).filter(|_| is_form && method == Method::POST) {
        Some(target) => Found::Call(target),
        None if at_path().next().is_some() => Found::NoSuchMethod,
        None => Found::NoSuchPath,
    }
}

/// What a path names by a pattern, if it follows it.
fn named_in(pattern: &str, path: &str) -> Option<String> {
    let Some((before, after)) = pattern.split_once("{}") else {
        return (pattern == path).then(String::new);
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then(|| decoded(name))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The paths of a field mask that a query gives, if it gives one.
pub(super) fn mask_in_query(query: &str) -> Option<Vec<String>> {
    let given = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("updateMask=").or_else(|| pair.strip_prefix("update_mask=")))?;
    Some(decoded(given).split(',').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// The method that a query asks for in place of the GET of an upgrade.
pub(super) fn method_in_query(query: &str) -> Option<Method> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("method="))
        .and_then(|method| Method::from_bytes(method.to_ascii_uppercase().as_bytes()).ok())
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let form: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];
        let put_form = &[form[0], (METHOD_OVERRIDE, "PUT")];
        let json_override: &[(&str, &str)] =
            &[("content-type", "application/json"), (METHOD_OVERRIDE, "GET")];
        let call = |call: Call| Found::Call(Target { call, name: String::new() });
        let named = |call: Call, name: &str| Found::Call(Target { call, name: name.to_owned() });
        let cases = [
            (Method::POST, "/ready", &[][..], call(Call::Ready)),
            (Method::GET, "/ready", &[], Found::NoSuchMethod),
            (Method::OPTIONS, "/ready", &[], Found::NoSuchMethod),
            (Method::HEAD, "/gameserver", &[], Found::NoSuchMethod),
            (Method::GET, "/nothing", &[], Found::NoSuchPath),
            (Method::GET, "/", &[], Found::NoSuchPath),
            (Method::GET, "/gameserver/", &[], Found::NoSuchPath),
            (Method::GET, "/watch/gameserver", &[], call(Call::WatchGameServer)),
            (Method::PUT, "/metadata/label", &[], call(Call::SetLabel)),
            (Method::POST, "/metadata/label", &[], Found::NoSuchMethod),
            (Method::POST, "/gameserver", &[], Found::NoSuchMethod),
            (Method::POST, "/gameserver", form, call(Call::GetGameServer)),
            (Method::POST, "/metadata/label", form, Found::NoSuchMethod),
            (Method::POST, "/metadata/label", put_form, call(Call::SetLabel)),
            (Method::POST, "/gameserver", json_override, Found::NoSuchMethod),
            (Method::GET, "/v1beta1/counters/rooms", &[], named(Call::GetCounter, "rooms")),
            (Method::PATCH, "/v1beta1/counters/a%2Fb%20c", &[], named(Call::UpdateCounter, "a/b c")),
            (Method::GET, "/v1beta1/counters/", &[], Found::NoSuchPath),
            (Method::GET, "/v1beta1/counters/a/b", &[], Found::NoSuchPath),
            (Method::PUT, "/v1beta1/counters/rooms", &[], Found::NoSuchMethod),
            (Method::POST, "/v1beta1/lists/maps:addValue", &[], named(Call::AddListValue, "maps")),
            (Method::POST, "/v1beta1/lists/a:b:removeValue", &[], named(Call::RemoveListValue, "a:b")),
            (Method::POST, "/v1beta1/lists/maps", &[], Found::NoSuchMethod),
            (Method::GET, "/v1beta1/lists/maps:addValue", &[], named(Call::GetList, "maps:addValue")),
            (Method::GET, "/alpha/player/connected", &[], call(Call::GetConnectedPlayers)),
            (Method::GET, "/alpha/player/connected/u1", &[], named(Call::IsPlayerConnected, "u1")),
            (Method::PUT, "/alpha/player/capacity", &[], call(Call::SetPlayerCapacity)),
            (Method::GET, "/alpha/player/capacity", &[], call(Call::GetPlayerCapacity)),
            (Method::POST, "/alpha/player/capacity", &[], Found::NoSuchMethod),
            (Method::POST, "/alpha/player/count", form, call(Call::GetPlayerCount)),
        ];
        for (method, path, given, found) in cases {
            let headers = given
                .iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
                .collect();
            assert_eq!(find(&method, path, &headers), found, "{method} {path} {given:?}");
        }
    }

    #[test]
    fn a_query_may_name_what_is_updated() {
        let paths = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>());
        assert_eq!(mask_in_query("a=b&updateMask=values"), paths(&["values"]));
        assert_eq!(mask_in_query("update_mask=values%2Ccapacity"), paths(&["values", "capacity"]));
        assert_eq!(mask_in_query("updateMask="), paths(&[]));
        assert_eq!(mask_in_query("mask=values"), None);
    }

    #[test]
    fn an_upgrade_may_name_a_method() {
        assert_eq!(method_in_query("method=POST"), Some(Method::POST));
        assert_eq!(method_in_query("a=b&method=put"), Some(Method::PUT));
        assert_eq!(method_in_query("methods=POST"), None);
    }
}
