//! Pages and stale reads.

use super::super::parameters::StaleReads;
use super::*;

fn pages(harbour: &mut Harbour, limit: Option<usize>) -> Vec<Vec<InstanceId>> {
    let mut pages = Vec::new();
    let mut token = None;
    loop {
        let paging = Paging { limit, token: token.take() };
        let wanted = ListInstances { group: group("pvp-eu"), ids: Vec::new(), paging };
        let page = harbour.world.list_instances(&wanted).unwrap();
        pages.push(page.items.into_iter().map(|(id, _)| id).collect());
        token = page.next;
        if token.is_none() {
            return pages;
        }
    }
}

#[test]
fn seven_instances_in_pages_of_two_are_four_pages_without_repetition() {
    let mut harbour = Harbour::new();
    harbour.launch("pvp-eu", 4);
    let pages = pages(&mut harbour, Some(2));
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2, 1]);
    let mut ids = pages.concat();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

#[test]
fn a_list_that_fills_its_last_page_ends_there() {
    let mut harbour = Harbour::new();
    harbour.launch("pvp-eu", 1);
    assert_eq!(pages(&mut harbour, Some(2)).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn page_sizes_are_parameters() {
    for (size, largest, limit, expected) in [
        (1, 100, None, 1),
        (2, 100, None, 2),
        (100, 100, None, 3),
        (100, 2, Some(100), 2),
        (1, 100, Some(3), 3),
    ] {
        let parameters = Parameters { page_size: size, largest_page: largest, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        assert_eq!(pages(&mut harbour, limit)[0].len(), expected, "{size} {largest} {limit:?}");
    }
}

#[test]
fn a_token_is_good_for_its_own_query_only() {
    let mut harbour = Harbour::new();
    harbour.order(json!({"order": "group", "group": "pve-eu"}));
    let mut list = |name: &str, ids: Vec<InstanceId>, token: Option<String>| {
        let paging = Paging { limit: Some(1), token };
        harbour.world.list_instances(&ListInstances { group: group(name), ids, paging })
    };
    let token = list("pvp-eu", Vec::new(), None).unwrap().next;
    assert!(token.as_ref().is_some_and(|token| token.len() <= 1024));
    assert_eq!(kind(list("pve-eu", Vec::new(), token.clone())), RefusalKind::InvalidRequest);
    assert_eq!(kind(list("pvp-eu", vec![InstanceId::of(1)], token.clone())), RefusalKind::InvalidRequest);
    assert_eq!(kind(list("pvp-eu", Vec::new(), Some("nonsense".to_owned()))), RefusalKind::InvalidRequest);
    assert!(list("pvp-eu", Vec::new(), token).is_ok());
}

#[test]
fn an_instance_that_goes_between_pages_hides_no_other() {
    let mut harbour = Harbour::new();
    harbour.launch("pvp-eu", 4);
    let list = |harbour: &mut Harbour, token| {
        let paging = Paging { limit: Some(3), token };
        harbour
            .world
            .list_instances(&ListInstances { group: group("pvp-eu"), ids: Vec::new(), paging })
            .unwrap()
    };
    let all = harbour.world.instances().map(|one| one.id.clone()).collect::<Vec<_>>();
    let first = list(&mut harbour, None);
    harbour.order(json!({"order": "group", "group": "pvp-eu", "change": {"desired": 0, "maximum": 0}}));
    harbour.order(json!({"order": "terminate", "instance": all[2], "hard": true}));
    let second = list(&mut harbour, first.next);
    let seen = second.items.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(seen, all[3..6]);
}

#[test]
fn ids_that_are_not_in_the_group_are_left_out_or_refused() {
    for refuses in [false, true] {
        let parameters = Parameters { refuse_unknown_instances: refuses, ..Parameters::default() };
        let mut harbour = Harbour::with(parameters);
        let ids = vec![harbour.instances[0].clone(), InstanceId::of(1)];
        let wanted = ListInstances { group: group("pvp-eu"), ids, paging: Paging::default() };
        let listed = harbour.world.list_instances(&wanted);
        if refuses {
            assert_eq!(kind(listed), RefusalKind::NotFound);
        } else {
            assert_eq!(listed.unwrap().items.len(), 1);
        }
    }
}

#[test]
fn servers_are_listed_in_the_order_that_was_asked_for() {
    let mut harbour = Harbour::new();
    let instance = harbour.instances[0].clone();
    for name in ["ccc", "aaa", "bbb", "ddd"] {
        harbour.register(name, &instance).unwrap();
        harbour.seconds(1);
    }
    let mut list = |order| {
        let wanted = ListServers { group: group("pvp-eu"), order, paging: Paging::default() };
        let page = harbour.world.list_servers(&wanted).unwrap();
        page.items.iter().map(|server| server.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(Some(SortOrder::Ascending)), ["ccc", "aaa", "bbb", "ddd"]);
    assert_eq!(list(Some(SortOrder::Descending)), ["ddd", "bbb", "aaa", "ccc"]);
    assert_eq!(list(None), list(None), "an order nobody can rely on, but a stable one");
    let unknown = ListServers { group: group("nobody"), order: None, paging: Paging::default() };
    assert_eq!(kind(harbour.world.list_servers(&unknown)), RefusalKind::InvalidRequest);
}

#[test]
fn a_stale_read_shows_what_was_and_a_call_acts_on_what_is() {
    let stale_reads = StaleReads { probability: 1.0, max_age_ms: Milliseconds::of_seconds(5) };
    let mut harbour = Harbour::with(Parameters { stale_reads, ..Parameters::default() });
    let instance = harbour.instances[0].clone();
    harbour.seconds(60);
    harbour.register("one", &instance).unwrap();
    let mut missing = 0;
    for _ in 0..100 {
        missing += u32::from(harbour.describe("one").is_err());
    }
    assert!(missing > 0, "a read may be older than the registration");
    assert!(harbour.claim(Some("one"), None).is_ok());
    harbour.seconds(6);
    for _ in 0..100 {
        assert!(harbour.describe("one").is_ok(), "no read is older than it may be");
    }
}
