//! What the requests of Kafka are called, and where they have the name that says what they are about. Each has
//! versions; from one of them on (*flexible*) lengths are packed, and fields may be added behind the others.

use crate::fields::Fields;

/// A kind of request.
pub struct Api {
    pub name: &'static str,
    /// The first version with packed lengths.
    flexible: i16,
    /// What stands before the name.
    before: Before,
    /// The last version that is known to be as this says.
    named: i16,
    /// Whether answers begin with how it went, and from which version on how long the answer was delayed
    /// stands before that.
    code: Option<i16>,
}

/// What stands before the name that a request is about.
#[derive(Clone, Copy)]
enum Before {
    /// There is no name.
    Unnamed,
    /// The name is the first field.
    Nothing,
    /// It is the first of a list.
    List,
    /// Messages to be stored: whose transaction they are of from version 3 on, how many have to confirm that, how long that
    /// may take; then topics.
    Produce,
    /// Who asks, for how long and how much to wait, what kind; then topics.
    Fetch,
    /// Who asks, what kind; then topics.
    Offsets,
}

const NEVER: i16 = i16::MAX;

const fn of(name: &'static str, flexible: i16, before: Before, code: Option<i16>) -> Api {
    Api { name, flexible, before, named: NEVER, code }
}

const fn until(last: i16, api: Api) -> Api {
    Api { named: last, ..api }
}

/// By their numbers.
const APIS: [Api; 40] = [
    until(12, of("Produce", 9, Before::Produce, None)),
    until(12, of("Fetch", 12, Before::Fetch, None)),
    of("ListOffsets", 6, Before::Offsets, None),
    until(9, of("Metadata", 9, Before::List, None)),
    of("LeaderAndIsr", 4, Before::Unnamed, None),
    of("StopReplica", 2, Before::Unnamed, None),
    of("UpdateMetadata", 6, Before::Unnamed, None),
    of("ControlledShutdown", 3, Before::Unnamed, None),
    of("OffsetCommit", 8, Before::Nothing, None),
    until(7, of("OffsetFetch", 6, Before::Nothing, None)),
    until(3, of("FindCoordinator", 3, Before::Nothing, Some(1))),
    of("JoinGroup", 6, Before::Nothing, Some(2)),
    of("Heartbeat", 4, Before::Nothing, Some(1)),
    of("LeaveGroup", 4, Before::Nothing, Some(1)),
    of("SyncGroup", 4, Before::Nothing, Some(1)),
    of("DescribeGroups", 5, Before::List, None),
    of("ListGroups", 3, Before::Unnamed, Some(1)),
    of("SaslHandshake", NEVER, Before::Nothing, Some(NEVER)),
    of("ApiVersions", 3, Before::Unnamed, Some(NEVER)),
    of("CreateTopics", 5, Before::List, None),
    until(5, of("DeleteTopics", 4, Before::List, None)),
    of("DeleteRecords", 2, Before::List, None),
    of("InitProducerId", 2, Before::Nothing, Some(0)),
    of("OffsetForLeaderEpoch", 4, Before::Unnamed, None),
    of("AddPartitionsToTxn", 3, Before::Unnamed, None),
    of("AddOffsetsToTxn", 3, Before::Nothing, Some(0)),
    of("EndTxn", 3, Before::Nothing, Some(0)),
    of("WriteTxnMarkers", 1, Before::Unnamed, None),
    of("TxnOffsetCommit", 3, Before::Nothing, None),
    of("DescribeAcls", 2, Before::Unnamed, None),
    of("CreateAcls", 2, Before::Unnamed, None),
    of("DeleteAcls", 2, Before::Unnamed, None),
    of("DescribeConfigs", 4, Before::Unnamed, None),
    of("AlterConfigs", 2, Before::Unnamed, None),
    of("AlterReplicaLogDirs", 2, Before::Unnamed, None),
    of("DescribeLogDirs", 2, Before::Unnamed, None),
    // A token, which is a secret: what it says is not looked at.
    of("SaslAuthenticate", 2, Before::Unnamed, None),
    of("CreatePartitions", 2, Before::List, None),
    of("CreateDelegationToken", 2, Before::Unnamed, None),
    of("RenewDelegationToken", 2, Before::Unnamed, None),
];

/// The highest number of a request, and its version, that are believed.
pub const APIS_MAX: u16 = 92;
pub const VERSIONS_MAX: u16 = 20;

/// A kind of request, if it is known here.
pub fn api(key: u16) -> Option<&'static Api> {
    APIS.get(usize::from(key))
}

/// Fields of a version with or without packed lengths.
struct Layout<'a> {
    fields: Fields<'a>,
    is_flexible: bool,
}

impl<'a> Layout<'a> {
    /// A text; none where it is nothing.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = match self.is_flexible {
            true => self.fields.number()?.checked_sub(1),
            false => self.fields.be16().filter(|length| *length != u16::MAX).map(u32::from),
        };
        self.fields.take(length.unwrap_or(0) as usize)
    }

    /// How many there are in a list; none where it is nothing.
    fn list(&mut self) -> Option<u32> {
        match self.is_flexible {
            true => Some(self.fields.number()?.saturating_sub(1)),
            false => Some(self.fields.be32().filter(|count| i32::try_from(*count).is_ok())?),
        }
    }
}

impl Api {
    /// What the request is about, as far as its version is known, and whether it is answered.
    pub fn about<'a>(&self, version: i16, fields: Fields<'a>) -> (&'a [u8], bool) {
        let mut layout = Layout { fields, is_flexible: version >= self.flexible };
        let mut is_answered = true;
        let name = self.name(version, &mut layout, &mut is_answered);
        (name.filter(|_| version <= self.named).unwrap_or_default(), is_answered)
    }

    fn name<'a>(
        &self,
        version: i16,
        layout: &mut Layout<'a>,
        is_answered: &mut bool,
    ) -> Option<&'a [u8]> {
        if layout.is_flexible {
            // Fields that were added to the head.
            let added = layout.fields.number()?;
            if added > 0 {
                return None;
            }
        }
        match self.before {
            Before::Unnamed => return None,
            Before::Nothing => return layout.text(),
            Before::List => {}
            Before::Produce => {
                if version >= 3 {
                    layout.text()?;
                }
                *is_answered = layout.fields.be16()? != 0;
                layout.fields.take(4)?;
            }
            Before::Fetch => {
                let limits = [(0, 12), (3, 4), (4, 1), (7, 8)].into_iter();
                let bytes =
                    limits.filter(|(since, _)| version >= *since).map(|(_, bytes)| bytes).sum();
                layout.fields.take(bytes)?;
            }
            Before::Offsets => {
                layout.fields.take(if version >= 2 { 5 } else { 4 })?;
            }
        }
        (layout.list()? > 0).then(|| layout.text()).flatten()
    }

    /// How it went, where the answer says it first.
    pub fn code(&self, version: i16, mut fields: Fields<'_>) -> Option<i16> {
        let delayed = self.code.filter(|_| version <= self.named)?;
        // The answer to the question for versions has a head that everybody can read.
        if version >= self.flexible && self.name != "ApiVersions" {
            fields.number().filter(|added| *added == 0)?;
        }
        if version >= delayed {
            fields.take(4)?;
        }
        fields.be16().map(|code| code as i16)
    }

    /// Whether it stores messages.
    pub fn is_produce(&self) -> bool {
        matches!(self.before, Before::Produce)
    }

    /// How the first message was stored: behind its topic and partition.
    pub fn produced(&self, version: i16, fields: Fields<'_>) -> Option<i16> {
        let mut layout = Layout { fields, is_flexible: version >= self.flexible };
        (version <= self.named).then_some(())?;
        if layout.is_flexible {
            layout.fields.number().filter(|added| *added == 0)?;
        }
        (layout.list()? > 0).then_some(())?;
        layout.text()?;
        (layout.list()? > 0).then_some(())?;
        layout.fields.take(4)?;
        layout.fields.be16().map(|code| code as i16)
    }
}
