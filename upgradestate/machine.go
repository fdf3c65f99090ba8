package upgradestate

// Event is something that happened or that somebody asks for.
type Event interface{ event() }

type (
	// AnnounceNamespace adds or completes the namespace of a version (its kinds were
	// provisioned). Repeating it is a no-op; it cannot change a kind that is there, and no
	// kinds are added to the source or target of a running upgrade. NextSeq may be 0 (the
	// first unused), Hidden and the class of a managed kind may be left out. Its Identity is
	// noted where there is none yet; another one is refused, as is that of another version.
	AnnounceNamespace struct{ Namespace Namespace }

	// AnnounceAvailable says that an upgrade to a version is possible. Ahead takes the mark
	// from any other.
	AnnounceAvailable struct{ Available Available }

	// WithdrawAvailable says that an upgrade to a version is no longer possible. The
	// one that runs goes on; what is not available is left alone.
	WithdrawAvailable struct{ TargetVersion string }

	// FenceLoaders announces the renames that keep out of a version, the one that is followed,
	// everybody who has read the source so far (Images.Fences). Seen is what the caller saw: when
	// another fence or transformation came first, or a switch has begun, it is ErrOutdated.
	FenceLoaders struct {
		Version string
		Seen    Images
	}

	// Begin creates the upgrade. Shards, if not 0, must equal the ring size. ID must be
	// new (random; the latest one is refused). An empty TransformHash takes that of the
	// available upgrade. The same TargetVersion and TransformHash as a running upgrade is
	// a no-op, also under another ID; with another Policy, unless it is zero, it is refused.
	// An update that has a Key, which runs when it begins, is cancelled.
	// Snapshot is allowed only as the rollback of the latest switch.
	Begin struct {
		ID            string
		TargetVersion string
		TransformHash string
		Shards        int
		Policy        Policy
		Snapshot      bool
	}

	// SetPolicy changes the policy of the upgrade that runs, before SWITCHING. What is nil
	// stays. ID "" means: whichever runs.
	SetPolicy struct {
		ID                                            string
		Hold                                          *bool
		DeadlineMillis, MaxPauseMillis, MaxHoldMillis *int64
		Retries                                       *int
	}

	// AskSwitch lets an upgrade that holds at ready go on to SWITCHING. It may come before
	// everything is ready. Repeated, also after the flip of that ID, it is a no-op.
	AskSwitch struct{ ID string }

	// SetPace changes how fast, and whether, bulk work goes on. What is nil stays.
	SetPace struct {
		Paused        *bool
		Reason        *string
		MaxRate       *int
		MaxSourceLoad *int
		Window        *string
	}

	// AnnounceIndexes notes the indexes that a kind gets from its source before they are built,
	// and forgets those that are dropped.
	AnnounceIndexes struct {
		Version, Kind  string
		Built, Dropped []string
	}
	// AnnounceExpiry notes the TTL indexes of a kind before they are kept from deleting.
	// Repeating it is a no-op. An index that is noted keeps its seconds, unless they are
	// those of Noted, what the caller knew to be noted when it looked at the indexes.
	AnnounceExpiry struct {
		Version, Kind string
		Expiry, Noted map[string]int64
	}
	// ForgetExpiry takes away notes of TTL indexes of the current version that delete again, or are
	// gone, by kind: an index that rests without a note was stopped by its application, and stays
	// so. After another Revision than the one that the caller read it is ErrOutdated: somebody
	// may have stopped the indexes since.
	ForgetExpiry struct {
		Version  string
		Kinds    map[string][]string
		Revision int64
	}

	// Complete begins to retire a version that is not current: its collections are set aside
	// and dropped at Until (RFC 3339; empty: dropped at once), and there is no rollback to it
	// from now on. Not while an upgrade runs. Repeated, also after it is retired, a no-op.
	Complete struct{ Version, Until string }

	// Keep changes until when the collections of a retired version are kept (RFC 3339; empty:
	// they are dropped now). What is being dropped cannot be kept any longer.
	Keep struct{ Version, Until string }

	// SetAside ends the retirement of a version whose collections are kept: they have the
	// names of RetiredName.
	SetAside struct{ Version string }

	// Dropped says that nothing of a retired version's namespace is left in the database.
	Dropped struct{ Version string }

	// BeginUpdate starts a data update within the current version, one at a time. The same
	// Name and Hash as one that runs is a no-op.
	BeginUpdate struct {
		Update Update
		// Unasked: no person wants it now. During an upgrade, or for a key that was declined
		// meanwhile, it is ErrOutdated: it was decided by an earlier record.
		Unasked bool
	}

	// UpdateDone says that shards of the update ID are done, and how much they saw and
	// changed since the last report. With the last shard the update is done. Reports for
	// another update are ErrOutdated; for a shard that is done, a no-op. Example is one of the
	// records that failed, for people.
	UpdateDone struct {
		ID      string
		Shard   int
		Count   UpdateCount
		Example string
	}

	// CancelUpdate ends the update that runs; what it changed stays. ID "" means whichever runs.
	// The Key of one that has one is declined.
	CancelUpdate struct{ ID, Reason string }

	// ConfigureKey says which key the records of a version are to be under: that another one was
	// declined before counts no more.
	ConfigureKey struct{ Version, Key string }

	// Remark adds an entry to the history about something that changes nothing here.
	Remark struct{ What, Detail string }

	// Report says that shards are ready, for one upgrade id, phase and attempt. In
	// SWITCHING it counts only in StepDrain, and only with Fences equal to
	// FenceNames of the record; repeated later it is a no-op. Reports for anything else
	// are ErrOutdated.
	Report struct {
		ID      string
		State   Phase
		Attempt uint64
		Fences  string
		Shards  []int
	}

	// Withdraw takes reports back. In StepSealTarget and later it is ErrOutdated.
	Withdraw struct {
		ID     string
		Shards []int
	}

	// StartSwitch enters SWITCHING/HOLD. Every shard must be ready and nothing pending
	// from an earlier attempt. All shards become pending. Attempt, if not 0, is the one
	// that it was decided in: a late one is ErrOutdated.
	StartSwitch struct {
		ID          string
		Attempt     uint64
		TargetSince string // Upgrade.TargetSince
	}

	// Held ends StepHold: announces a fence for every source kind, enters StepFence.
	Held struct{ ID string }

	// Confirmed says that the pending operation of one kind of one version is confirmed.
	// When the last one of the step is, the next step begins by itself:
	// StepFence -> StepDrain; StepSealTarget -> StepSealSource (last renames announced;
	// straight to "may flip" for kinds whose class does not rename).
	// Confirming what is not, or no longer, pending under that name is a no-op. From, the
	// pending operation's, is needed only where To is an own name, which is no new one: a late
	// confirmation must not count for a later opening. The end of a fence by Unfence is
	// confirmed by Unfenced.
	Confirmed struct {
		Version string
		Kind    string
		To      string
		From    string
	}

	// Prevented says that the announced rename of a source kind has not happened and cannot
	// happen any longer: the kind keeps its name. Only in StepAbort; of what is not pending
	// (or no longer) under that name a no-op.
	Prevented struct {
		Version string
		Kind    string
		To      string
	}

	// Unfenced says that the Unfence of one kind is confirmed. From is that of the action, a
	// name or mark that is used once, so that a late Unfenced cannot end a later fence. What
	// is not, or no longer, pending with that From is a no-op.
	Unfenced struct {
		Version string
		Kind    string
		From    string
	}

	// Together makes several transitions, in order, as one: a switch of many kinds confirms
	// their operations with one write of the record. If one is refused or outdated, none is made.
	Together struct{ Events []Event }

	// Drained ends StepDrain when every shard has reported: announces the target's
	// renames, enters StepSealTarget.
	Drained struct{ ID string }

	// Flip makes the target current: epoch+1, no upgrade. Only in StepSealSource with
	// everything confirmed. Kinds that clients write under their own name are announced
	// to be opened (PendingOpen); writes begin when that is confirmed. ID, From and To of
	// the Switch are filled in. Repeating the latest flip is a no-op.
	Flip struct {
		ID     string
		Switch Switch
	}

	// Abort ends the upgrade. In INITIAL_SYNCING at once; in SWITCHING it enters
	// StepAbort, where announced source renames are completed or prevented and the
	// source's fences that do not rename by identity are removed. Without an upgrade, or
	// for another ID, a no-op (ID "" means: whichever runs).
	//
	// Attempt, if not 0, is the attempt that is given up: for any other a no-op, so that a
	// driver that was late ends no later attempt. With Again the upgrade goes on after it
	// in INITIAL_SYNCING, as often as its policy allows; an Abort without it is final, also
	// while one with it is being completed.
	Abort struct {
		ID      string
		Reason  string
		Attempt uint64
		Again   bool
	}

	// Aborted ends StepAbort: nothing is pending on the source. The source's names, as
	// confirmed, are the tokens again; the target's announced seals stay pending. The
	// upgrade ends, or is in INITIAL_SYNCING again with no shard ready.
	Aborted struct{ ID string }
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

// Apply makes the transition that e asks for, or returns d unchanged with ErrOutdated or
// a RefusedError. It never modifies its argument nor keeps any of it. A no-op returns a
// record deeply equal to d: nothing needs to be written then.
func Apply(d Deployment, e Event) (Deployment, error) {
	if d.Format > Format {
		return d, refused("deployment %s has record format %d, this binary knows %d: use a newer binary", d.Name, d.Format, Format)
	}
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
