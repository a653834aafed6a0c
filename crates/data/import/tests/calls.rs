//! Calls that stubs of protoc-gen-fettle reported.

mod common;

use std::path::PathBuf;

use common::made;
use fettle_import::Format;

/// `shop.Shop/Buy` at its client and its server, and a call without a name.
const EVENTS: &str = r#"{"event":1,"ns_per_tick":0.5,"pid":10,"sensor":"rpc.calls","thread":11,"ticks":5000,"time_ns":1700000000000009000,"type":"event","version":1,"words":[1000,SERVICE0016,1,5,7,1,2,77,0,7161685,0,0,0,3,18446744073709551615,4609434218613702656]}
{"event":1,"ns_per_tick":0.5,"pid":20,"sensor":"rpc.calls","thread":20,"ticks":4000,"time_ns":1700000000000008000,"type":"event","version":1,"words":[3000,SERVICE1873,4294967296,5,7,1,2,78,77]}
{"event":19,"ns_per_tick":0.5,"pid":10,"sensor":"rpc.calls","thread":11,"ticks":1001,"time_ns":1700000000000007001,"type":"event","version":1,"words":[77,SERVICE0000,1,2,1001]}
{"event":1,"ns_per_tick":0.5,"pid":10,"sensor":"rpc.calls","thread":11,"ticks":9000,"time_ns":1700000000000009500,"type":"event","version":1,"words":[8000,0,0,0,0,3,4,5,0]}
no event
{"lost":3,"read":4,"sensor":"rpc.calls","type":"end","version":1}
"#;

const NAMES: &str = r#"{"fettle_calls":1,"services":[{"name":"shop.Shop","methods":[{"name":"Buy","fields":[
  {"name":"customer","type":"text","word":0},{"name":"picture_size","type":"u64","word":4},
  {"name":"change","type":"i64","word":5},{"name":"price","type":"f64","word":6}]}]}]}"#;

#[test]
fn calls_have_names_times_and_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: String| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let number = u64::from(fettle_abi::rpc::service_number("shop.Shop")) << 32;
    let events = EVENTS
        .replace("SERVICE0016", &(number | 1 << 4).to_string())
        .replace("SERVICE1873", &(number | 7 << 8 | 5 << 4 | 1).to_string())
        .replace("SERVICE0000", &(number | 255 << 8).to_string());
    let names = path("shop.fettle-calls", NAMES.to_owned());
    let events = path("calls.jsonl", events);
    let made = made(&[events.clone(), names]).unwrap();
    assert_eq!(made.imported.formats, [Format::Calls]);
    let trace = "00000000000000010000000000000002";
    let (client, server) = ("000000000000004d", "000000000000004e");
    let begins = made.events("rpc_begin");
    assert_eq!(begins[0][1..], ["10", "11", trace, client, "", "client", "shop.Shop/Buy"]);
    assert_eq!(begins[1][1..], ["20", "20", trace, server, client, "server", "shop.Shop/Buy"]);
    assert_eq!(begins[2][6..], ["client", "0x00000000/0"]);
    let ends = made.events("rpc_end");
    let server_end = ends.iter().find(|end| end[4] == server).unwrap();
    assert_eq!(
        server_end[5..],
        ["server", "shop.Shop/Buy", "PERMISSION_DENIED", "raised", "0", "1", "5", "7", "500"]
    );
    let client_end = ends.iter().find(|end| end[4] == client).unwrap();
    assert_eq!(client_end[7..], ["OK", "finished", "1", "0", "5", "7", "2000"]);
    let fields = made.events("shop_Shop_Buy");
    let of_client = fields.iter().find(|fields| fields[4] == client).unwrap();
    assert_eq!(of_client[5..], ["UGm", "3", "-1", "1.5"]);
    assert_eq!(made.events("rpc_hook")[0][3..], [trace, client, "shop.Shop/Buy", "before_call"]);
    let losses = &made.imported.manifest.losses;
    let lost: Vec<u64> = losses.iter().map(|loss| loss.count).collect();
    assert_eq!(lost, [3, 1, 1], "{losses:?}");
}

#[test]
fn a_names_file_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("x.fettle-calls");
    std::fs::write(&names, "{}").unwrap();
    let error = made(&[names]).err().unwrap().to_string();
    assert!(error.contains("it is no names file of this version"), "{error}");
}
