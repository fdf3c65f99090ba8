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

	"dbcontroller.dev/record"
)

// Beat is a count that a database holds, and the coordination store as well. A database whose
// count is behind was restored from a backup. Nonce distinguishes two beats of one count: after a
// restore the same count comes again.
type Beat struct {
	Count uint64 `json:"count" bson:"count"`
	Nonce string `json:"nonce" bson:"nonce"`
}

// Beats keep the latest beat of each version's database that is known to be in it.
type Beats interface {
	// LoadBeat returns the zero Beat where there is none. incarnation is a random name of this
	// coordination store's record of the deployment. Empty: it has none yet.
	LoadBeat(ctx context.Context, version string) (b Beat, incarnation string, err error)
	// SaveBeat stores a beat unless a later one is stored.
	SaveBeat(ctx context.Context, version string, b Beat) error
}

// RestoredError means that a database is older than what was known to be in it. Trying again does
// not cure it.
type RestoredError struct {
	Version     string
	Has, Wanted uint64 // the counts in it, and that it must have at least
}

func (e *RestoredError) Error() string {
	return fmt.Sprintf("database of %s: it was restored from a backup: it holds beat %d, and held %d before", e.Version, e.Has, e.Wanted)
}

// ElsewhereError means that controllers of another coordination store use a database for the same
// deployment. Nothing was changed. Trying again does not cure it. It is a record.ErrBroken: a
// stream of that database must not be followed.
type ElsewhereError struct{ Version string }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("database of %s: controllers with another etcd use it for this deployment, or etcd was emptied: stop one of the two, and correct its etcd in the configuration; "+
		"if this etcd is the right one, stop all controllers and run 'dbcontroller recover' with it", e.Version)
}

// ForgedBeatError means that a database holds a beat that no controller has counted. Counting on from
// it would overflow for good. Nothing was changed. Trying again does not cure it.
type ForgedBeatError struct {
	Version    string
	Has, Known uint64 // the counts in it, and in the coordination store
}

func (e *ForgedBeatError) Error() string {
	return fmt.Sprintf("database of %s: it holds beat %d, and etcd knows of beat %d: no controller has counted so far, so that somebody else wrote it: "+
		"find out who can write to that database, stop all controllers and run 'dbcontroller recover'", e.Version, e.Has, e.Known)
}

// Is makes it the error of a stream that must not be followed.
func (e *ElsewhereError) Is(target error) bool { return target == record.ErrBroken }

// implausible is how far no count of ours gets: a thousand a second reach it after 35 years.
const implausible = 1 << 40

// forged reports whether nobody can have counted so far.
func forged(has, known uint64) bool { return has > known && has-known > implausible }

// beatFormat is the version of a beat in a database. A binary refuses a newer one.
const beatFormat = 1

type storedBeat struct {
	Format int `bson:"format"`
	Beat   `bson:",inline"`
	// Incarnation is that of the coordination store whose controllers have counted. Binaries that
	// do not know it leave it out. The next beat of one that does adds it again.
	Incarnation string `bson:"incarnation,omitempty"`
}

// Pulse counts the beats of one version's database.
//
// A beat goes to the database first, acknowledged by a majority, and then to the coordination
// store, which so is never ahead of a database that was not restored. A backup from before a beat
// has a lower count. One beat is counted between what a checkpoint says and its being stored, one
// at the check before a switch and one at the flip. So what a stored checkpoint says is in the
// database, or the database is behind. The limit: of what applications wrote after the latest
// beat, nothing shows that a backup, made after that beat and restored before the next, lacks it.
//
// The first beat also claims the database for one coordination store, by its incarnation of the
// deployment. Two stores that hold one deployment would each run a switch of their own. The limit:
// a copy of an etcd has the same incarnation.
type Pulse struct {
	Owner record.Owner
	DB    record.Marker
	Beats Beats

	once sync.Once
	busy *semaphore.Weighted // held by one at a time, across calls of the database
	rev  int64               // of the mark that holds the beat, as this process wrote it last; 0: not known
	last storedBeat
}

// BeatOwner is whose mark holds the beats of a namespace.
func BeatOwner(o record.Owner) record.Owner {
	o.Version += "#beat"
	return o
}

// alone waits until no other call is under way.
func (p *Pulse) alone(ctx context.Context) (done func(), err error) {
	p.once.Do(func() { p.busy = semaphore.NewWeighted(1) })
	if err := p.busy.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { p.busy.Release(1) }, nil
}

// Beat counts one further. A *RestoredError has changed nothing.
func (p *Pulse) Beat(ctx context.Context) error {
	return p.put(ctx, func(has storedBeat, known Beat, incarnation string) (storedBeat, error) {
		if err := p.fits(has, known, incarnation); err != nil {
			return has, err
		}
		return next(has.Count, incarnation), nil
	})
}

// Look is Beat, and counts nothing.
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

// fits is a *RestoredError for a beat that is older than the known one, a *ForgedBeatError for one
// that nobody can have counted, and otherwise an *ElsewhereError for one that was counted with another
// coordination store. In this order: a backup may be from before a recovery, which begins another
// incarnation.
func (p *Pulse) fits(has storedBeat, known Beat, incarnation string) error {
	switch {
	case has.Count < known.Count || has.Count == known.Count && has.Nonce != known.Nonce:
		return &RestoredError{Version: p.Owner.Version, Has: has.Count, Wanted: known.Count}
	case forged(has.Count, known.Count):
		return &ForgedBeatError{Version: p.Owner.Version, Has: has.Count, Known: known.Count}
	case has.Incarnation != "" && incarnation != "" && has.Incarnation != incarnation:
		return &ElsewhereError{Version: p.Owner.Version}
	default:
		return nil
	}
}

// next is the beat after a count.
func next(count uint64, incarnation string) storedBeat {
	return storedBeat{Format: beatFormat, Beat: Beat{Count: count + 1, Nonce: rand.Text()}, Incarnation: incarnation}
}

// Accept makes what a restored database holds count from now on: its next beat is later than all
// that were, except forged ones. It also takes a database over from another coordination store.
func (p *Pulse) Accept(ctx context.Context) error {
	return p.put(ctx, func(has storedBeat, known Beat, incarnation string) (storedBeat, error) {
		if forged(has.Count, known.Count) {
			return next(known.Count, incarnation), nil
		}
		return next(max(has.Count, known.Count), incarnation), nil
	})
}

// put writes what change makes of the beat in the database and of the known one, and then notes it.
func (p *Pulse) put(ctx context.Context, change func(has storedBeat, known Beat, incarnation string) (storedBeat, error)) error {
	done, err := p.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	known, incarnation, err := p.Beats.LoadBeat(ctx, p.Owner.Version)
	if err != nil {
		return err
	}
	what := "beat of " + p.Owner.Version
	for {
		remembered := p.rev != 0
		if !remembered {
			if err := p.look(ctx); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		b, err := change(p.last, known, incarnation)
		if err != nil {
			p.rev = 0
			if remembered {
				continue // others have counted on, or it was restored: the database shows which
			}
			return err
		}
		body, err := bson.Marshal(b)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		rev := max(p.rev, 0)
		err = p.DB.PutMark(ctx, record.Mark{Owner: BeatOwner(p.Owner), Rev: rev, Body: body})
		if err == nil {
			p.rev, p.last = rev+1, b
			return p.Beats.SaveBeat(ctx, p.Owner.Version, b.Beat)
		}
		p.rev = 0
		if !errors.Is(err, record.ErrMismatch) && !errors.Is(err, record.ErrUnknown) || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// look reads the beat in the database. A rev of -1 stands for none.
func (p *Pulse) look(ctx context.Context) error {
	marks, err := p.DB.Marks(ctx)
	if err != nil {
		return err
	}
	p.rev, p.last = -1, storedBeat{}
	for _, m := range marks {
		if m.Owner != BeatOwner(p.Owner) {
			continue
		}
		var b storedBeat
		if err := bson.Unmarshal(m.Body, &b); err != nil {
			// No binary of any format writes such a beat. Accept replaces it.
			b = storedBeat{Beat: Beat{Count: math.MaxUint64}}
		}
		if b.Format > beatFormat {
			p.rev = 0
			return fmt.Errorf("it has format %d, this binary knows %d: use a newer binary", b.Format, beatFormat)
		}
		p.rev, p.last = m.Rev, b
	}
	return nil
}
