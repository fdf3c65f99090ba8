package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Beat is a counter that a database and the coordination store both hold. A database with the lower
// count was restored from a backup. Nonce distinguishes two beats with one count, because counting
// repeats after a restore.
type Beat struct {
	Count uint64 `json:"count" bson:"count"`
	Nonce string `json:"nonce" bson:"nonce"`
}

// Beats stores, in the coordination store, the latest beat that each version's database is known to
// hold.
type Beats interface {
	// LoadBeat returns the zero Beat if there is none. incarnation is the random name that this
	// coordination store gave the deployment; empty: none yet.
	LoadBeat(ctx context.Context, version string) (b Beat, incarnation string, err error)
	// SaveBeat stores a beat unless a later one is stored.
	SaveBeat(ctx context.Context, version string, b Beat) error
	// AdvanceBeat replaces the beat from by to, if from is stored and the store has that incarnation,
	// as this process has loaded or stored them last. false: one of them differs, is not known, or
	// the outcome is unknown. The caller then loads both.
	AdvanceBeat(ctx context.Context, version, incarnation string, from, to Beat) (bool, error)
}

// RestoredError means that a database is older than its known content. Retries do not help.
type RestoredError struct {
	Version     string
	Has, Wanted uint64 // count in the database, and the least expected count
	// Finding identifies the two beats, also across controllers. It changes with the next Accept.
	Finding string
}

func (e *RestoredError) Error() string {
	return fmt.Sprintf("database of %s: it was restored from a backup: it holds beat %d, but held %d before", e.Version, e.Has, e.Wanted)
}

// ElsewhereError means that controllers of another coordination store use a database for the same
// deployment. Nothing was changed. Retries do not help. It is a record.ErrBroken: no process may
// follow a stream of that database.
type ElsewhereError struct{ Version string }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("database of %s: controllers with another etcd use it for this deployment, or etcd was emptied: stop one of the two groups, and correct its etcd in the configuration; "+
		"if this etcd is the right one, stop all controllers and run 'dbcontroller recover' with it", e.Version)
}

// IsElsewhere reports whether an error means that controllers with another etcd use the database.
func IsElsewhere(err error) bool {
	var e *ElsewhereError
	return errors.As(err, &e)
}

// ForgedBeatError means that a database holds a beat that no controller can have counted. Counting
// on from it would overflow for good. Nothing was changed. Retries do not help.
type ForgedBeatError struct {
	Version    string
	Has, Known uint64 // count in the database, and in the coordination store
}

func (e *ForgedBeatError) Error() string {
	return fmt.Sprintf("database of %s: it holds beat %d, but the last beat in etcd is %d: no controller has counted so far, so somebody else wrote it: "+
		"find out which users can write to that database, stop all controllers and run 'dbcontroller recover'", e.Version, e.Has, e.Known)
}

// Is makes ElsewhereError a record.ErrBroken, so that no process follows the stream.
func (e *ElsewhereError) Is(target error) bool { return target == record.ErrBroken }

// implausible is a count that no controller reaches: at a thousand a second it takes 35 years.
const implausible = 1 << 40

// forged reports whether no controller can have counted that far.
func forged(has, known uint64) bool { return has > known && has-known > implausible }

// beatFormat is the version of a beat in a database. A binary refuses a newer one.
const beatFormat = 1

type storedBeat struct {
	Format int `bson:"format"`
	Beat   `bson:",inline"`
	// Incarnation names the coordination store of the controllers that count. Older binaries omit
	// it, and the next beat of a newer binary adds it again.
	Incarnation string `bson:"incarnation,omitempty"`
}

// Pulse counts the beats of one version's database. Its methods may run concurrently; one at a time
// proceeds.
//
// A beat goes to the database first, with majority acknowledgement, and then to the coordination
// store. So the store is never ahead of a database, unless that database was restored. A backup
// from before a beat has a lower count.
//
// Controllers count a beat after the writes of a checkpoint, before they store the checkpoint. They
// count one more at the check before a switch, and one at the flip. So the database contains
// everything that a stored checkpoint covers, or its count is behind. The limit: a backup made
// after the latest beat and restored before the next one lacks the writes in between, of
// applications and of a running engine, and no count shows it.
//
// The first beat also claims the database for one coordination store, by the store's incarnation of
// the deployment. Two stores with one deployment would each run a switch of their own. The limit: a
// copy of an etcd has the same incarnation.
type Pulse struct {
	Owner record.Owner
	DB    record.Marker
	Beats Beats

	once sync.Once
	busy *semaphore.Weighted // held across database calls, so not a mutex: ctx can end the wait
	rev  int64               // of the beat's mark as last written; 0: unknown, -1: no mark
	last storedBeat
	body bson.Raw // of that mark; nil: unknown, or no mark
	// saved means that the coordination store holds last as well, as far as this process knows. The
	// next beat then begins without a read there.
	saved bool
}

// BeatOwner returns the owner under which a namespace's beats are stored.
func BeatOwner(o record.Owner) record.Owner {
	o.Version += "#beat"
	return o
}

// alone waits until no other call is running. The caller must call done.
func (p *Pulse) alone(ctx context.Context) (done func(), err error) {
	p.once.Do(func() { p.busy = semaphore.NewWeighted(1) })
	if err := p.busy.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { p.busy.Release(1) }, nil
}

// Beat counts one more beat. After a *RestoredError, *ForgedBeatError or *ElsewhereError nothing
// has changed.
func (p *Pulse) Beat(ctx context.Context) error {
	done, err := p.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	if ok, err := p.advance(ctx); ok || err != nil {
		return err
	}
	return p.put(ctx, func(has storedBeat, known Beat, incarnation string) (storedBeat, error) {
		if err := p.fits(has, known, incarnation); err != nil {
			return has, err
		}
		return next(has.Count, incarnation), nil
	})
}

// advance counts one more beat if database and coordination store hold the last beat of this process.
// Both writes prove that: each is conditional on that beat. If only the first succeeds, both are
// read and compared again, as for any beat, so a restore between the two is found here as well. It
// returns false if the beat is still to be counted.
func (p *Pulse) advance(ctx context.Context) (bool, error) {
	// Marks of older binaries have no incarnation, and only a full beat adds it.
	if p.rev <= 0 || !p.saved || p.last.Incarnation == "" {
		return false, nil
	}
	p.saved = false
	from, b := p.last, next(p.last.Count, p.last.Incarnation)
	if err := p.mark(ctx, b); err != nil {
		return false, err
	}
	if p.last != b {
		return false, nil
	}
	ok, err := p.Beats.AdvanceBeat(ctx, p.Owner.Version, b.Incarnation, from.Beat, b.Beat)
	if !ok {
		p.rev = 0 // nothing that is remembered counts as proven
	}
	p.saved = ok
	return ok, err
}

// mark writes a beat to the database, on top of the one in last. If another beat is there, or the
// outcome is unknown, it returns nil and forgets last.
func (p *Pulse) mark(ctx context.Context, b storedBeat) error {
	what := "beat of " + p.Owner.Version
	body, err := bson.Marshal(b)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	rev := max(p.rev, 0)
	// The revision alone does not do: the database may have been restored, and counted up to it again.
	err = p.DB.PutMark(ctx, record.Mark{Owner: BeatOwner(p.Owner), Rev: rev, Body: body, Was: p.body})
	if err == nil {
		// Remember the new revision: the next beat then needs no read.
		p.rev, p.last, p.body = rev+1, b, body
		return nil
	}
	// The write is lost or unknown: read before the next try.
	p.rev, p.last, p.body = 0, storedBeat{}, nil
	if !errors.Is(err, record.ErrMismatch) && !errors.Is(err, record.ErrUnknown) || ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Look makes the same checks as Beat, and counts nothing.
func (p *Pulse) Look(ctx context.Context) error {
	done, err := p.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	known, incarnation, err := p.Beats.LoadBeat(ctx, p.Owner.Version)
	if err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return fmt.Errorf("beat of %s: %w", p.Owner.Version, err)
	}
	return p.fits(p.last, known, incarnation)
}

// fits checks the beat in the database against the known one. It returns a *RestoredError for an
// older beat, a *ForgedBeatError for an impossible count, and an *ElsewhereError for another
// incarnation. The order matters: a backup may be from before a recovery, which starts a new
// incarnation.
func (p *Pulse) fits(has storedBeat, known Beat, incarnation string) error {
	switch {
	case has.Count < known.Count || has.Count == known.Count && has.Nonce != known.Nonce:
		return &RestoredError{
			Version: p.Owner.Version, Has: has.Count, Wanted: known.Count,
			Finding: fmt.Sprintf("%d %s, before %d %s", has.Count, has.Nonce, known.Count, known.Nonce),
		}
	case forged(has.Count, known.Count):
		return &ForgedBeatError{Version: p.Owner.Version, Has: has.Count, Known: known.Count}
	case has.Incarnation != "" && incarnation != "" && has.Incarnation != incarnation:
		return &ElsewhereError{Version: p.Owner.Version}
	default:
		return nil
	}
}

// next returns the beat after a count.
func next(count uint64, incarnation string) storedBeat {
	return storedBeat{Format: beatFormat, Beat: Beat{Count: count + 1, Nonce: rand.Text()}, Incarnation: incarnation}
}

// Accept makes a restored database count again: its next beat is later than all earlier ones,
// except forged ones. It also takes a database over from another coordination store.
func (p *Pulse) Accept(ctx context.Context) error {
	done, err := p.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	return p.put(ctx, func(has storedBeat, known Beat, incarnation string) (storedBeat, error) {
		// The known count is the only trustworthy one.
		if forged(has.Count, known.Count) {
			return next(known.Count, incarnation), nil
		}
		return next(max(has.Count, known.Count), incarnation), nil
	})
}

// put writes the beat that change returns, first to the database and then to the coordination
// store. The caller is alone.
func (p *Pulse) put(ctx context.Context, change func(has storedBeat, known Beat, incarnation string) (storedBeat, error)) error {
	p.saved = false
	known, incarnation, err := p.Beats.LoadBeat(ctx, p.Owner.Version)
	if err != nil {
		return err
	}
	for {
		// Usually no read is needed: this process wrote the last beat itself.
		remembered := p.rev != 0
		if !remembered {
			if err := p.look(ctx); err != nil {
				return fmt.Errorf("beat of %s: %w", p.Owner.Version, err)
			}
		}
		b, err := change(p.last, known, incarnation)
		if err != nil {
			p.rev = 0
			if remembered {
				continue // others counted, or a restore: read the database
			}
			return err
		}
		if err := p.mark(ctx, b); err != nil {
			return err
		}
		if p.last != b {
			continue
		}
		err = p.Beats.SaveBeat(ctx, p.Owner.Version, b.Beat)
		p.saved = err == nil
		return err
	}
}

// look reads the beat in the database. It sets rev to -1 if there is none.
func (p *Pulse) look(ctx context.Context) error {
	marks, err := p.DB.Marks(ctx)
	if err != nil {
		return err
	}
	p.rev, p.last, p.body = -1, storedBeat{}, nil
	for _, m := range marks {
		if m.Owner != BeatOwner(p.Owner) {
			continue
		}
		var b storedBeat
		if err := rawdoc.Unmarshal(m.Body, &b); err != nil {
			// No binary of any format writes such a beat, so it counts as forged. Accept replaces
			// it.
			b = storedBeat{Beat: Beat{Count: math.MaxUint64}}
		}
		if b.Format > beatFormat {
			p.rev = 0
			return fmt.Errorf("it has format %d, but this binary knows %d: use a newer binary", b.Format, beatFormat)
		}
		p.rev, p.last, p.body = m.Rev, b, m.Body
	}
	return nil
}
