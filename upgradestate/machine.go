package upgradestate

// Event is a fact or a request that may change the record.
type Event interface{ event() }

type (
	// AnnounceNamespace adds a version's namespace, or kinds to it, after its collections were
	// provisioned. A repetition is a no-op. It cannot change an existing kind, and it cannot add
	// kinds to the source or target of a running upgrade. NextSeq may be 0 (the first unused
	// number). Hidden and the class of a managed kind may be left out. Identity is recorded if it
	// is unknown. A different identity, or the identity of another version, is refused.
	AnnounceNamespace struct{ Namespace Namespace }

	// AnnounceAvailable announces that an upgrade to a version is possible. If it is Precopied, no
	// other available upgrade is Precopied any longer.
	AnnounceAvailable struct{ Available Available }

	// WithdrawAvailable announces that an upgrade to a version is no longer possible. It does not
	// change a running upgrade, and an unavailable version is a no-op.
	WithdrawAvailable struct{ TargetVersion string }

	// FenceLoaders announces renames in the followed version that stop all writers that have read
	// the source so far (Images.Fences). Seen is the caller's view. The event is ErrOutdated if
	// another fence or transformation came first, or a switch has begun.
	FenceLoaders struct {
		Version string
		Seen    Images
	}

	// Begin creates the upgrade. Shards, if not 0, must equal the ring size. ID must be new and
	// random. The ID of the latest upgrade is refused. An empty TransformHash selects the hash of
	// the available upgrade. If an upgrade with the same TargetVersion and TransformHash runs,
	// Begin is a no-op, even under another ID. With another non-zero Policy it is then refused.
	// Begin cancels a running update with a Key. A rollback also cancels one that began by itself. Snapshot is allowed only as the rollback of the
	// latest switch, or to keep the version that followed a restored one.
	Begin struct {
		ID            string
		TargetVersion string
		TransformHash string
		Shards        int
		Policy        Policy
		Snapshot      bool
	}

	// AskSwitch lets an upgrade that holds at ready go on to SWITCHING. It may come before all
	// shards are ready. A repetition is a no-op, also after the flip of that ID.
	AskSwitch struct{ ID string }

	// SetPace changes the speed of bulk work, or pauses it. A nil field keeps its value.
	SetPace struct {
		Paused        *bool
		Reason        *string
		MaxRate       *int
		MaxSourceLoad *int
		Window        *string
	}

	// AnnounceIndexes records the indexes that controllers are about to build on a kind from its
	// source, and removes dropped ones.
	AnnounceIndexes struct {
		Version, Kind  string
		Built, Dropped []string
	}
	// AnnounceExpiry records the seconds of a kind's TTL indexes before the indexes are stopped, by
	// index name. A repetition is a no-op. Noted holds the recorded seconds that the caller saw
	// when it read the indexes. A recorded index keeps its seconds unless they equal those in
	// Noted: in between, another caller may have stopped the index, so that the caller read the
	// seconds of a stopped index.
	AnnounceExpiry struct {
		Version, Kind string
		Expiry, Noted map[string]int64
	}
	// ForgetExpiry removes the recorded seconds of TTL indexes of the current version that delete
	// again or are gone. Kinds lists the indexes by kind. A stopped index without recorded seconds
	// was stopped by its application and stays stopped. If Revision is not the record's, or Version
	// is not current, the event is ErrOutdated: another process may have stopped the indexes since.
	// It is refused in SWITCHING, and while a switch may begin.
	ForgetExpiry struct {
		Version  string
		Kinds    map[string][]string
		Revision int64
	}

	// Complete starts to retire a version that is not current. Its collections are set aside and
	// dropped at Until (RFC 3339; empty: at once). From now on there is no rollback to it. It is
	// refused during an upgrade. A repetition is a no-op, also after the retirement.
	//
	// Lost declares the version's database lost: nothing is dropped there. It also ends a retirement
	// that waits for the database.
	Complete struct {
		Version, Until string
		Lost           bool
	}

	// Keep changes the time until which the collections of a retired version are kept (RFC 3339;
	// empty: they are dropped now). It is refused if the drop has started.
	Keep struct{ Version, Until string }

	// SetAside reports that the collections of a version that retires with Until have the names of
	// RetiredName. The retirement ends, and the namespace moves to Kept. A repetition is a no-op.
	SetAside struct{ Version string }

	// Dropped reports that the database has nothing left of a version's namespace. It ends the
	// retirement of the version, or removes its namespace from Kept. A repetition is a no-op.
	Dropped struct{ Version string }

	// BeginUpdate starts a data update within the current version, one at a time. It is a no-op if
	// an update with the same Name and Hash runs.
	BeginUpdate struct {
		Update Update
		// Unasked means that no operator requested the update. The event is then ErrOutdated during
		// an upgrade, for a version that is no longer current, and for a key that was declined
		// meanwhile: the decision was based on an earlier record.
		Unasked bool
		// Follows, if not nil, says that the update begins by itself, after which switch of another
		// deployment. The event is then ErrOutdated if that pass is not due, or an update cannot begin
		// now. A repetition with the same Update.ID is a no-op.
		Follows *Follows
	}

	// UpdateDone reports that a shard of the update run ID is done, with its counts. The last shard
	// ends the update. A report for another run is ErrOutdated; for a finished shard it is a no-op.
	// Example is one of the failed records, for people.
	UpdateDone struct {
		ID      string
		Shard   int
		Count   UpdateCount
		Example string
	}

	// CancelUpdate ends the running update and keeps its changes. ID "" selects the running one. If
	// the update has a Key, that key counts as declined.
	CancelUpdate struct{ ID, Reason string }

	// ConfigureKey sets the wanted encryption key of a version's records. It clears an earlier
	// refusal of another key.
	ConfigureKey struct{ Version, Key string }

	// Remark adds an entry to the history about a fact that changes nothing else.
	Remark struct{ What, Detail string }

	// Report reports shards as ready, for one upgrade id, phase and attempt. In SWITCHING it counts
	// only in StepDrain and only if Fences equals FenceNames of the record. A later repetition is a
	// no-op. Any other report is ErrOutdated.
	Report struct {
		ID      string
		State   Phase
		Attempt uint64
		Fences  string
		Shards  []int
	}

	// Withdraw withdraws reports. From StepSealTarget on it is ErrOutdated.
	Withdraw struct {
		ID     string
		Shards []int
	}

	// StartSwitch enters SWITCHING/HOLD and makes all shards pending. Every shard must be ready,
	// and nothing may be pending from an earlier attempt. Attempt, if not 0, is the attempt of the
	// decision; for another one the event is ErrOutdated.
	StartSwitch struct {
		ID          string
		Attempt     uint64
		TargetSince string // Upgrade.TargetSince
	}

	// Held ends StepHold. It announces a fence for every source kind and enters StepFence. Attempt,
	// if not 0, is the attempt that it belongs to, also in the events below: for another one the
	// event is ErrOutdated, so that a late driver moves no later attempt on.
	Held struct {
		ID      string
		Attempt uint64
	}

	// Confirmed reports that the pending operation of one kind is confirmed at the database. The
	// last confirmation of a step enters the next step: StepFence -> StepDrain, and StepSealTarget
	// -> StepSealSource with the last renames announced. Only kinds fenced by uuid have a last
	// rename. An operation that is not pending under that name is a no-op.
	//
	// From is needed only if To is the kind's own name. That name is reused, so a late confirmation
	// could otherwise count for a later opening. Unfenced, not Confirmed, confirms an Unfence.
	Confirmed struct {
		Version string
		Kind    string
		To      string
		From    string
	}

	// Prevented reports that the announced rename of a source kind has not happened and cannot
	// happen any more, so that the kind keeps its name. It is valid only in StepAbort. An operation
	// that is not pending under that name is a no-op.
	Prevented struct {
		Version string
		Kind    string
		To      string
	}

	// Unfenced reports that the Unfence of one kind is confirmed. From is the action's From, a name
	// or mark that is used once, so that a late Unfenced cannot end a later fence. An opening that
	// is not pending with that From is a no-op.
	Unfenced struct {
		Version string
		Kind    string
		From    string
	}

	// Together applies several events in order as one transition. A switch of many kinds thereby
	// confirms all operations with one write. If one event is refused or outdated, none takes
	// effect.
	Together struct{ Events []Event }

	// Drained ends StepDrain after every shard has reported. It announces the target's renames and
	// enters StepSealTarget.
	Drained struct {
		ID      string
		Attempt uint64
	}

	// Flip makes the target current, increments the epoch and ends the upgrade. It is valid only in
	// StepSealSource with everything confirmed. It announces the opening of kinds that clients
	// write under their own name (PendingOpen). Writes start after its confirmation. It fills in
	// ID, From and To of Switch. A repetition of the latest flip is a no-op.
	Flip struct {
		ID      string
		Attempt uint64
		Switch  Switch
	}

	// Abort ends the upgrade: at once in INITIAL_SYNCING, through StepAbort in SWITCHING. StepAbort
	// completes or prevents announced source renames and removes source fences that do not rename
	// by identity. Without an upgrade, or for another ID, it is a no-op. ID "" selects the running
	// upgrade.
	//
	// Attempt, if not 0, is the attempt to give up; for another attempt the event is a no-op, so
	// that a late driver ends no later attempt. With Again the upgrade then continues in
	// INITIAL_SYNCING, as often as its policy allows. An Abort without Again is final, also during
	// an abort with it.
	Abort struct {
		ID      string
		Reason  string
		Attempt uint64
		Again   bool
	}

	// Aborted ends StepAbort when nothing is pending on the source. The confirmed names of the
	// source are tokens again. Announced seals of the target stay pending. The upgrade ends, or is
	// in INITIAL_SYNCING again without ready shards.
	Aborted struct {
		ID      string
		Attempt uint64
	}
)

func (AnnounceNamespace) event() {}
func (AnnounceAvailable) event() {}
func (WithdrawAvailable) event() {}
func (FenceLoaders) event()      {}
func (Begin) event()             {}
func (SetPolicy) event()         {}
func (AskSwitch) event()         {}
func (SetPace) event()           {}
func (AnnounceExpiry) event()    {}
func (ForgetExpiry) event()      {}
func (AnnounceIndexes) event()   {}
func (Complete) event()          {}
func (Dropped) event()           {}
func (Keep) event()              {}
func (SetAside) event()          {}
func (BeginUpdate) event()       {}
func (UpdateDone) event()        {}
func (CancelUpdate) event()      {}
func (ConfigureKey) event()      {}
func (Remark) event()            {}
func (Report) event()            {}
func (Withdraw) event()          {}
func (StartSwitch) event()       {}
func (Held) event()              {}
func (Confirmed) event()         {}
func (Prevented) event()         {}
func (Unfenced) event()          {}
func (Together) event()          {}
func (Drained) event()           {}
func (Flip) event()              {}
func (Abort) event()             {}
func (Aborted) event()           {}

// Apply returns the record after an event. On ErrOutdated or a RefusedError it returns d unchanged.
// It neither modifies d nor keeps any part of it. A no-op returns a record deeply equal to d, which
// need not be stored.
func Apply(d Deployment, e Event) (Deployment, error) {
	// A newer record may have fields that a write by this binary would lose.
	if d.Format > Format {
		return d, refused("deployment %s has record format %d, this binary knows %d: use a newer binary", d.Name, d.Format, Format)
	}
	// Transitions work in place, so a refused one may leave the copy half done.
	next := Clone(d)
	if err := next.apply(e); err != nil {
		return d, err
	}
	return next, nil
}

func (d *Deployment) apply(e Event) error {
	switch e := e.(type) {
	case AnnounceNamespace:
		return d.announceNamespace(e.Namespace)
	case AnnounceAvailable:
		return d.announceAvailable(e.Available)
	case WithdrawAvailable:
		return d.withdrawAvailable(e)
	case FenceLoaders:
		return d.fenceLoaders(e)
	case Begin:
		return d.begin(e)
	case SetPolicy:
		return d.setPolicy(e)
	case AskSwitch:
		return d.askSwitch(e)
	case SetPace:
		return d.setPace(e)
	case AnnounceExpiry:
		return d.announceExpiry(e)
	case ForgetExpiry:
		return d.forgetExpiry(e)
	case AnnounceIndexes:
		return d.announceIndexes(e)
	case Complete:
		return d.complete(e)
	case Keep:
		return d.keep(e)
	case SetAside:
		return d.setAside(e)
	case Dropped:
		return d.dropped(e)
	case BeginUpdate:
		return d.beginUpdate(e)
	case UpdateDone:
		return d.updateDone(e)
	case CancelUpdate:
		return d.cancelUpdate(e)
	case ConfigureKey:
		return d.configureKey(e)
	case Remark:
		return d.remark(e)
	case Report:
		return d.report(e)
	case Withdraw:
		return d.withdraw(e)
	case StartSwitch:
		return d.startSwitch(e)
	case Held:
		return d.held(e)
	case Confirmed:
		return d.confirmed(e)
	case Breached:
		return d.breached(e)
	case AcceptBreaches:
		return d.acceptBreaches()
	case Adopt:
		return d.adopt(e)
	case StartAt:
		return d.startAt(e)
	case Replace:
		return d.replace(e)
	case CopiedAnew:
		return d.copiedAnew(e)
	case FoundRestored:
		return d.foundRestored(e)
	case FollowRestored:
		return d.followRestored(e)
	case Rebuild:
		return d.rebuild(e)
	case Compared:
		return d.compared(e)
	case Repair:
		return d.repair(e)
	case Repaired:
		return d.repaired(e)
	case Prevented:
		return d.prevented(e)
	case Unfenced:
		return d.unfenced(e)
	case Together:
		// The caller drops the whole copy if a later part is refused.
		for _, part := range e.Events {
			if err := d.apply(part); err != nil {
				return err
			}
		}
		return nil
	case Drained:
		return d.drained(e)
	case Flip:
		return d.flip(e)
	case Abort:
		return d.abort(e)
	case Aborted:
		return d.aborted(e)
	default:
		return refused("unknown event %T", e)
	}
}
