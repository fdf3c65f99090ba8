package fences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// The server cannot refuse a late collMod or a late write block, as a gate refuses a late view. A
// caller may pause between its check and its command, or the command may wait for a lock. So three
// parties look for a late fence:
//
//   - The caller that sends it checks again afterwards that the fence has not ended.
//   - Unfence sends its command even if it sees no fence. It then waits for the lock behind the
//     fence's command.
//   - Uphold lifts a validator whose fence has ended. The caller may have died before its check.
//
// A late restore is as possible. It would lift the validator of a later fence. Its caller looks for
// that fence afterwards (standAgain).

// lateCheckLimit bounds the check for a late fence after a caller's context has ended.
const lateCheckLimit = 10 * time.Second

// setUnlessEnded retries set and confirm until the fence stands. If the fence ends meanwhile, lift
// removes what a late command has set.
func (n *validators) setUnlessEnded(ctx context.Context, f record.Fence, set, confirm, lift func(context.Context) error) error {
	sent := false
	check := func(ctx context.Context) error {
		err := n.RefuseUnfenced(ctx, f)
		if !sent || !errors.Is(err, conn.ErrUnfenced) {
			return err
		}
		if liftErr := lift(ctx); liftErr != nil {
			return fmt.Errorf("lift a fence that came late: %w", liftErr)
		}
		n.Log.Warn("lifted a fence that came after its end", zap.String("collection", n.Name+"."+f.Token.Name), zap.String("fence", f.To))
		return err
	}
	err := n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		// Check before, so that a removed fence blocks nothing even for a moment.
		if err := check(ctx); err != nil {
			return err
		}
		sent = true
		if err := set(ctx); err != nil {
			return err
		}
		// Check together with confirm: clients wait meanwhile.
		confirmed := make(chan error, 1)
		go func() { confirmed <- confirm(ctx) }()
		ended := check(ctx)
		return cmp.Or(ended, <-confirmed)
	})
	if err == nil || !sent || ctx.Err() == nil {
		return err
	}
	// A process that slept past its deadline learns only here that the fence has ended.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateCheckLimit)
	defer cancel()
	if late := check(late); late != nil && !errors.Is(late, conn.ErrUnfenced) {
		err = errors.Join(err, late)
	}
	return err
}

// liftEnded lifts a validator of a fence that has ended. The application may have replaced its
// collection.
func (n *validators) liftEnded(ctx context.Context, tok record.Token) error {
	c, err := n.CollectionNamed(ctx, tok.Name)
	if err != nil || c == nil || c.Type != "collection" || c.FenceMark() == "" {
		return err
	}
	was, ended, err := n.endedAs(ctx, *c)
	if err != nil || !ended {
		return err // it is being set right now
	}
	to := strings.TrimPrefix(c.FenceMark(), conn.ClosingMark)
	n.Log.Warn("lifting a fence that came after its end", zap.String("collection", n.Name+"."+tok.Name), zap.String("fence", to))
	return n.restoreValidator(ctx, record.Fence{To: to}, record.Token{Name: tok.Name, ID: c.ID()}, was)
}

// standAgain restores a later fence of a collection that the end of the fence to has lifted.
func (n *validators) standAgain(ctx context.Context, tok record.Token, to, noted string) error {
	note, err := n.Noted(ctx, conn.NoteRestore+noted)
	if err != nil {
		return err
	}
	later, err := n.laterFence(ctx, note, to)
	if err != nil || later == "" {
		return err
	}
	c, err := n.fencedCollection(ctx, tok)
	if err != nil || c.FenceMark() != "" {
		return Decided(err)
	}
	n.Log.Error("a late end of a fence lifted the next one, which is put back", zap.String("collection", n.Name+"."+tok.Name), zap.String("fence", later))
	if err := n.SetValidator(ctx, tok, standingIn(later)); err != nil {
		return err
	}
	// That fence may have ended meanwhile.
	return n.liftEnded(ctx, tok)
}

// standingIn is the validation in place of a fence that somebody has lifted. Clients may have
// written meanwhile. Its mark is not the one of the fence, so Uphold finds and reports a breach.
func standingIn(to string) Restoration { return refusing(conn.ClosingMark + to) }

// laterFence returns the fence that noted a collection's validation last, if it was announced after
// the fence to and has not ended.
func (n *validators) laterFence(ctx context.Context, note bson.Raw, to string) (later string, err error) {
	last, ok := note.Lookup(noteSeq).AsInt64OK() // missing in notes of earlier versions
	kind, seq, known := record.KindOfPhysical(to)
	if !ok || !known || last < 0 || uint64(last) <= seq {
		return "", nil
	}
	later = record.PhysicalName(kind, uint64(last))
	if err := n.RefuseUnfenced(ctx, record.Fence{To: later}); err != nil {
		return "", unlessUnfenced(err)
	}
	return later, nil
}

// noteSeq is the number of the last fence in the note of a collection's validation.
const noteSeq = "seq"

// noteValidator notes the validation that a fence replaces, and the number of the fence.
func (n *validators) noteValidator(ctx context.Context, f record.Fence, c *conn.Collection) error {
	set := bson.D{{Key: "name", Value: f.Token.Name}}
	// If an earlier fence stands, its note has the true validation.
	if c.FenceMark() == "" {
		present, err := validationOf(c)
		if err != nil {
			return err
		}
		set = append(set, bson.E{Key: "restore", Value: present})
	}
	update := bson.D{{Key: "$set", Value: set}}
	if _, seq, ok := record.KindOfPhysical(f.To); ok && seq <= math.MaxInt64 {
		// A late note must not hide a later fence.
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: noteSeq, Value: int64(seq)}}})
	}
	return n.Note(ctx, conn.NoteRestore+c.ID(), update)
}
