package fences

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// The validator fence. No document satisfies {$expr: {$eq: ["dbc-fence:<mark>", ""]}}. Inserts and
// updates that do not bypass validation fail with 121. Deletes pass, and so does findAndModify with
// remove. Clients of managed kinds therefore write a tombstone to delete. The change stream shows
// the deletes of other applications.
//
// The shards of a cluster change the validator one after the other, and each reports it by its own
// event, which is the marker. After the first event, another shard could still accept writes.
// Through mongos the validator is therefore set twice. The first one refuses as much, but its mark
// says "closing" and is no marker. The second one has the real mark and follows once the first is
// in force on all shards.

// Restoration is the validation that a validator fence replaces.
type Restoration struct {
	Validator bson.Raw `bson:"validator,omitempty"`
	Level     string   `bson:"level,omitempty"`
	Action    string   `bson:"action,omitempty"`
}

// text returns the form that RestorationFrom reads.
func (r Restoration) text() (string, error) {
	text, err := r.json()
	if err != nil {
		return "", err
	}
	// The library changes a text that is not UTF-8. Without this check, the end of the fence would
	// silently set another validator.
	again, err := RestorationFrom(text)
	if err != nil {
		return "", err
	}
	if back, err := again.json(); err != nil || back != text {
		return "", errors.New("the validator would change when a fence notes and restores it: it has a text that is not UTF-8; change the validator")
	}
	return text, nil
}

func (r Restoration) json() (string, error) {
	b, err := bson.MarshalExtJSON(r, true, false)
	if err != nil {
		return "", fmt.Errorf("write validator: %w", err)
	}
	return string(b), nil
}

// RestorationFrom reads the text of a restoration.
func RestorationFrom(text string) (Restoration, error) {
	var r Restoration
	if text == "" {
		return r, nil
	}
	// The library never returns for some texts that end too early.
	if !json.Valid([]byte(text)) {
		return r, errors.New("read the validator to restore: it is no JSON")
	}
	if err := bson.UnmarshalExtJSON([]byte(text), true, &r); err != nil {
		return r, fmt.Errorf("read the validator to restore: %w", err)
	}
	return r, nil
}

// validatorOf returns the validation for Unfence to restore. If the collection is fenced now, it is
// the one that the fence noted before it replaced it.
func (n *validators) validatorOf(ctx context.Context, tok record.Token) (string, error) {
	c, err := n.fencedCollection(ctx, tok)
	if err != nil {
		return "", err
	}
	return n.ValidatorIn(ctx, c)
}

// ValidatorIn is validatorOf for a collection that was just listed.
func (n *validators) ValidatorIn(ctx context.Context, c *conn.Collection) (string, error) {
	if c.FenceMark() == "" {
		return validationOf(c)
	}
	text, ok, err := n.notedRestore(ctx, c.ID())
	if err != nil || ok {
		return text, err
	}
	// The collection may be a copy that took over the fence with the options.
	was, ended, err := n.endedAs(ctx, *c)
	if err != nil || !ended {
		return "", cmp.Or(err, ErrNothingNoted)
	}
	if text, ok, err = n.notedRestore(ctx, was); err == nil && !ok {
		err = ErrNothingNoted
	}
	return text, err
}

var ErrNothingNoted = errors.New("it is fenced, but its former validator is not recorded")

// endedAs reports whether the fence of a collection was removed from another collection, was. This
// one is then a copy with the other's options.
func (n *validators) endedAs(ctx context.Context, c conn.Collection) (was string, ended bool, err error) {
	note, err := n.Noted(ctx, conn.UnfencedNotes+strings.TrimPrefix(c.FenceMark(), conn.ClosingMark))
	if err != nil || note == nil {
		return "", false, err
	}
	was, _ = note.Lookup("id").StringValueOK() // missing in notes of earlier versions
	return was, was != "", nil
}

// endCopy removes the fence of a collection if it belongs to another collection and has ended. $out
// reads the options of a collection when it begins, and puts its own collection in place when it
// ends. If the fence was removed in between, nobody else would remove the copied one.
func (n *validators) endCopy(ctx context.Context, tok record.Token) error {
	c, err := n.fencedCollection(ctx, tok)
	if err != nil || c.FenceMark() == "" || n.Quiet {
		return err
	}
	was, ended, err := n.endedAs(ctx, *c)
	if err != nil || !ended || was == c.ID() {
		return err // its own fence: the controller that set it removes it
	}
	return n.restoreValidator(ctx, record.Fence{}, record.Token{Name: tok.Name, ID: c.ID()}, was)
}

// notedRestore returns the validation that the latest fence replaced.
func (n *validators) notedRestore(ctx context.Context, id string) (text string, ok bool, err error) {
	note, err := n.Noted(ctx, conn.NoteRestore+id)
	if err != nil {
		return "", false, err
	}
	text, ok = note.Lookup("restore").StringValueOK()
	return text, ok, nil
}

// carryRestore copies the note of a collection's validation to the collection that takes its place.
// A cluster that moves a collection keeps the fence, but under another UUID. Without the copy
// nobody would know what to restore, and no rollback to it could begin.
func (n *validators) carryRestore(ctx context.Context, from, to string) error {
	if to == "" {
		return nil
	}
	text, ok, err := n.notedRestore(ctx, from)
	if err != nil || !ok {
		return err
	}
	// A note of its own is newer than the copied one.
	if _, has, err := n.notedRestore(ctx, to); err != nil || has {
		return err
	}
	return n.Note(ctx, conn.NoteRestore+to, bson.D{{Key: "$set", Value: bson.D{{Key: "restore", Value: text}}}})
}

// validationOf returns the current validation of a collection in the form that Unfence takes.
func validationOf(c *conn.Collection) (string, error) {
	var r Restoration
	if v, ok := c.Options.Lookup("validator").DocumentOK(); ok {
		r.Validator = v
	}
	r.Level, _ = c.Options.Lookup("validationLevel").StringValueOK()
	r.Action, _ = c.Options.Lookup("validationAction").StringValueOK()
	return r.text()
}

// fencedCollection returns the collection of a token. It must be a plain collection with the
// token's UUID.
func (n *validators) fencedCollection(ctx context.Context, tok record.Token) (*conn.Collection, error) {
	c, err := n.CollectionNamed(ctx, tok.Name)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("collection %s: %w", tok.Name, record.ErrNotFound)
	case c.Type != "collection":
		return nil, &record.UnsupportedError{What: "collection " + n.Name + "." + tok.Name, Reason: "it is a " + c.Type}
	}
	// Without a UUID in the token, the name is all that identifies the collection.
	if tok.ID != "" {
		// The same name may belong to a new collection by now.
		uuid, err := conn.CollectionUUID(tok.ID)
		if err != nil {
			return nil, err
		}
		if !c.Is(uuid) {
			return nil, fmt.Errorf("%s is another collection now (%s instead of %s): %w", tok.Name, c.ID(), tok.ID, record.ErrBroken)
		}
	}
	return c, nil
}

func (n *validators) fenceValidator(ctx context.Context, f record.Fence) error {
	if _, err := RestorationFrom(f.Restore); err != nil {
		return err
	}
	set := func(ctx context.Context) error {
		c, err := n.fencedCollection(ctx, f.Token)
		if err != nil {
			return Decided(err)
		}
		if f.Standing && c.FenceMark() != f.To {
			return conn.Permanent(record.ErrLapsed)
		}
		// Note the validation first, so that any controller that finds the fence can remove it.
		// Note the current one: the application may have changed it since Prepare.
		noted := make(chan error, 1)
		switch c.FenceMark() {
		case f.To:
			noted <- nil
		case "":
			if err := n.noteValidator(ctx, f, c); err != nil {
				return err
			}
			noted <- nil
		default:
			// An earlier fence that nobody removed. Its note has the true validation, so nothing
			// waits for this one.
			go func() { noted <- n.noteValidator(ctx, f, c) }()
		}
		mongos, err := n.IsMongos(ctx)
		if err != nil {
			return err
		}
		// Close every shard first; only then may the real mark appear in the change stream.
		if mongos && c.FenceMark() != f.To {
			if err := n.SetValidator(ctx, f.Token, refusing(conn.ClosingMark+f.To)); err != nil {
				return err
			}
		}
		// Send it even if it is there already. Only an acknowledged majority command shows that the
		// fence is in force; a node's list does not.
		return cmp.Or(n.SetValidator(ctx, f.Token, refusing(f.To)), <-noted)
	}
	confirm := func(ctx context.Context) error {
		if err := n.Mark(ctx, f); err != nil {
			return err
		}
		// Another process may have removed the fence meanwhile.
		c, err := n.fencedCollection(ctx, f.Token)
		if err != nil {
			return Decided(err)
		}
		if c.FenceMark() != f.To {
			return errors.New("the validator was missing when the controller confirmed it")
		}
		return nil
	}
	lift := func(ctx context.Context) error { return n.liftValidator(ctx, f) }
	return n.setUnlessEnded(ctx, f, set, confirm, lift)
}

// refusing returns the validation that no document passes.
func refusing(mark string) Restoration {
	return Restoration{
		Validator: wire.MustMarshal(bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{conn.FencePrefix + mark, ""}}}}}),
		Level:     "strict",
		Action:    "error",
	}
}

func (n *validators) unfenceValidator(ctx context.Context, f record.Fence) error {
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.noteUnfenced(ctx, f.Token, f.To); err != nil {
			return err
		}
		if err := n.endBefore(ctx, f); err != nil {
			return err
		}
		return n.liftValidator(ctx, f)
	})
}

// liftValidator restores the validation that a fence replaced. The end of the fence is noted.
func (n *validators) liftValidator(ctx context.Context, f record.Fence) error {
	tok := f.Token
	c, err := n.fencedCollection(ctx, tok)
	if err != nil && tok.ID != "" && (errors.Is(err, record.ErrBroken) || errors.Is(err, record.ErrNotFound)) {
		// The application replaced its collection. Give the former one back wherever it is,
		// since the application may rename it back.
		if err := n.unfenceCopy(ctx, f); err != nil {
			return err
		}
		if tok.Name, err = n.Locate(ctx, tok.ID); errors.Is(err, record.ErrNotFound) {
			return nil
		} else if err == nil {
			c, err = n.fencedCollection(ctx, tok)
		}
	}
	if err != nil {
		return Decided(err)
	}
	if c.FenceMark() == "" {
		announced, err := n.announced(ctx, f, c.ID())
		if err != nil || !announced {
			return err
		}
		// A command of the fence may wait for a lock. This one waits behind it.
		if err := n.pass(ctx, tok); err != nil {
			return err
		}
		if c, err = n.fencedCollection(ctx, tok); err != nil {
			return Decided(err)
		}
	}
	switch mark := c.FenceMark(); mark {
	case "":
		return nil
	// Remove only this fence; a later one is another controller's.
	case f.To, conn.ClosingMark + f.To:
	default:
		return conn.Permanent(fmt.Errorf("it is fenced as %s, not as %s", mark, f.To))
	}
	return n.restoreValidator(ctx, f, tok, c.ID())
}

// announced reports whether the command of a fence may have been sent. Its sender notes the number of
// the fence first. An abort of a fence that was never sent must not wait behind open transactions. A
// sender that comes later checks afterwards that the fence has not ended, and so does Uphold.
func (n *validators) announced(ctx context.Context, f record.Fence, id string) (bool, error) {
	note, err := n.Noted(ctx, conn.NoteRestore+id)
	if err != nil || note == nil {
		return false, err
	}
	last, counted := note.Lookup(noteSeq).AsInt64OK() // missing in notes of earlier versions
	_, seq, known := record.KindOfPhysical(f.To)
	return !counted || !known || last < 0 || uint64(last) >= seq, nil
}

// pass waits for commands that change the collection's options. It changes nothing.
func (n *validators) pass(ctx context.Context, tok record.Token) error {
	cmd, err := conn.WithUUID(bson.D{{Key: "collMod", Value: tok.Name}}, tok)
	if err != nil {
		return err
	}
	err = n.Change(ctx, n.DB, cmd)
	// A build refuses the command only after it has the lock. Without the privilege no restore could
	// follow either.
	if conn.HasCode(err, conn.CodeBackgroundOperation, conn.CodeUnauthorized) {
		return nil
	}
	return err
}

// unfenceCopy removes the fence of the collection that has taken the fenced one's name, if it has
// this fence. A cluster that moves or reshards a collection creates another one with the same
// options, and so does $out. Without this the application's writes would fail for good.
func (n *validators) unfenceCopy(ctx context.Context, f record.Fence) error {
	c, err := n.CollectionNamed(ctx, f.Token.Name)
	if err != nil || c == nil || c.Type != "collection" {
		return err
	}
	if mark := c.FenceMark(); mark != f.To && mark != conn.ClosingMark+f.To {
		return nil // another fence
	}
	return n.restoreValidator(ctx, f, record.Token{Name: f.Token.Name, ID: c.ID()}, f.Token.ID)
}

// restoreValidator gives a collection the validation that the fence of the collection noted
// replaced.
func (n *validators) restoreValidator(ctx context.Context, f record.Fence, tok record.Token, noted string) error {
	// A build refuses collMod, and held writes cannot wait for hours.
	stopped := make(chan error, 1)
	go func() { stopped <- n.stopBuilds(ctx, tok.Name) }()
	note, err := n.Noted(ctx, conn.NoteRestore+noted)
	if err := cmp.Or(<-stopped, err); err != nil {
		return err
	}
	text, ok := note.Lookup("restore").StringValueOK()
	if !ok {
		text = f.Restore // from Prepare: older, but better than none
	}
	r, err := RestorationFrom(text)
	if err != nil {
		return conn.Permanent(err)
	}
	// This fence came late, over a later one that stands.
	later, err := n.laterFence(ctx, note, f.To)
	if err != nil {
		return err
	}
	if later != "" {
		r = standingIn(later)
	}
	if err := n.SetValidator(ctx, tok, r); err != nil {
		return err
	}
	return n.standAgain(ctx, tok, f.To, noted)
}

// SetValidator replaces validator, level and action, with a majority. Unset values become the
// defaults, which have the same meaning.
func (n *validators) SetValidator(ctx context.Context, tok record.Token, r Restoration) error {
	// collMod changes only the given fields, so give all three.
	if r.Validator == nil {
		r.Validator = wire.MustMarshal(bson.D{})
	}
	if r.Level == "" {
		r.Level = "strict"
	}
	if r.Action == "" {
		r.Action = "error"
	}
	cmd := bson.D{
		{Key: "collMod", Value: tok.Name},
		{Key: "validator", Value: r.Validator},
		{Key: "validationLevel", Value: r.Level},
		{Key: "validationAction", Value: r.Action},
	}
	cmd, err := conn.WithUUID(cmd, tok)
	if err != nil {
		return err
	}
	return n.Change(ctx, n.DB, cmd)
}

// noteUnfenced records that a fence is removed. Callers do this before they remove it.
func (n *validators) noteUnfenced(ctx context.Context, tok record.Token, to string) error {
	set := bson.D{{Key: "name", Value: tok.Name}}
	if tok.ID != "" {
		set = append(set, bson.E{Key: "id", Value: tok.ID})
	}
	return n.Note(ctx, conn.UnfencedNotes+to, bson.D{{Key: "$set", Value: set}})
}

// Decided marks errors that no retry changes as permanent.
func Decided(err error) error {
	var unsupported *record.UnsupportedError
	if errors.Is(err, record.ErrBroken) || errors.Is(err, record.ErrNotFound) || errors.As(err, &unsupported) {
		return conn.Permanent(err)
	}
	return err
}

// Moderate reports whether a collection accepts documents that its validator refuses if they were
// there before the validator (validationLevel moderate). The source may hold such documents, and
// they are copied as they are.
func (n *validators) Moderate(ctx context.Context, tok record.Token) (bool, error) {
	text, err := n.validatorOf(ctx, tok)
	if err != nil {
		return false, err
	}
	validation, err := RestorationFrom(text)
	return validation.Level == "moderate", err
}
