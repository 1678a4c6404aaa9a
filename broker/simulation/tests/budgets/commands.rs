//! What a command needs for a tenant's objects, besides the text that it reads.

use jiff::Timestamp;
use keyferry_api::name::Namespace;
use keyferry_fleet::folder::FolderReader;
use keyferry_fleet::judge::judge;
use keyferry_reach::world::World;

use crate::cost::{Cost, Memory};
use crate::hub_objects::{large_access, large_account};
use crate::large_hub::LargeObject;

/// The objects of one file.
const OBJECTS: usize = 10;

fn file_of(objects: impl Iterator<Item = LargeObject>) -> String {
    let objects: Vec<String> = objects.map(|object| object.to_text()).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
        objects.join(",")
    )
}

pub(crate) async fn fleet_accesses() -> Cost {
    let text = file_of(
        (0..OBJECTS).map(|index| LargeObject::largest(large_access(index, 10), r#","c/d""#, "]}}")),
    );
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let memory = Memory::measure();
    let mut reader = FolderReader::new("large");
    let size = text.len() as u64;
    assert_eq!(
        reader.accept_file("hub/targetaccesses.yaml", size),
        Ok(true)
    );
    reader.add_file("hub/targetaccesses.yaml", text.as_bytes());
    let reading = reader.finish(now).unwrap();
    let fleet = judge(&reading.snapshot, now);
    assert_eq!(fleet.accesses.len(), OBJECTS);
    memory.cost()
}

pub(crate) async fn reach_accounts() -> Cost {
    let text = file_of((0..OBJECTS).map(large_account));
    let memory = Memory::measure();
    let mut world = World::new(Namespace::new("keyferry-system").unwrap());
    assert!(world.add_file("hub/serviceaccounts.yaml", &text).is_ok());
    let cost = memory.cost();
    drop(world);
    cost
}
