package mongostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// The validator fence: no document satisfies {$expr: {$eq: ["dbc-fence:<mark>", ""]}}.
// Inserts and updates of everyone who does not bypass validation fail with 121. Deletes
// pass, so does findAndModify with remove; clients of managed kinds therefore delete by
// writing a tombstone, and the deletes of other applications are found in the stream.
//
// The shards of a cluster change the validator one after the other, and each reports it
// by an event of its own, which is the marker: behind the first one another shard could
// still accept writes. So through mongos the validator is set twice. The first one
// refuses as much, but its mark says "closing" and is no marker; the second, with the
// mark itself, follows when the first is in force on all shards.

// restoration is what a validator fence replaces.
type restoration struct {
	Validator bson.Raw `bson:"validator,omitempty"`
	Level     string   `bson:"level,omitempty"`
	Action    string   `bson:"action,omitempty"`
}

func (r restoration) text() (string, error) {
	b, err := bson.MarshalExtJSON(r, true, false)
	if err != nil {
		return "", fmt.Errorf("write validator: %w", err)
	}
	return string(b), nil
}

func restorationFrom(text string) (restoration, error) {
	var r restoration
	if text == "" {
		return r, nil
	}
	if err := bson.UnmarshalExtJSON([]byte(text), true, &r); err != nil {
		return r, fmt.Errorf("read the validator to restore: %w", err)
	}
	return r, nil
}

// validatorOf returns what Unfence has to restore. For a collection that is fenced now it
// is what the fence noted before it replaced it.
func (n *Namespace) validatorOf(ctx context.Context, tok record.Token) (string, error) {
	c, err := n.fencedCollection(ctx, tok)
	if err != nil {
		return "", err
	}
	if c.fenceMark() == "" {
		return c.validation()
	}
	text, ok, err := n.notedRestore(ctx, c.id())
	if err != nil || ok {
		return text, err
	}
	was, ended, err := n.endedAs(ctx, *c)
	if err != nil || !ended {
		return "", cmp.Or(err, errNothingNoted)
	}
	if text, ok, err = n.notedRestore(ctx, was); err == nil && !ok {
		err = errNothingNoted
	}
	return text, err
}

var errNothingNoted = errors.New("it is fenced, and nothing is noted of the validator that it had")

// endedAs reports whether the fence of a collection has ended, which then is a copy of it, and the
// collection that it was on.
func (n *Namespace) endedAs(ctx context.Context, c collection) (was string, ended bool, err error) {
	note, err := n.noted(ctx, unfencedNotes+strings.TrimPrefix(c.fenceMark(), closingMark))
	if err != nil || note == nil {
		return "", false, err
	}
	was, _ = note.Lookup("id").StringValueOK() // not there in notes of earlier versions
	return was, was != "", nil
}

// endCopy gives back a collection that has the fence of another one, which has ended. $out takes the
// options of a collection when it begins, and puts its own in that one's place when it ends: with
// the end of a fence in between, nobody else would ever take it away.
func (n *Namespace) endCopy(ctx context.Context, tok record.Token) error {
	c, err := n.fencedCollection(ctx, tok)
	if err != nil || c.fenceMark() == "" || n.quiet {
		return err
	}
	was, ended, err := n.endedAs(ctx, *c)
	if err != nil || !ended || was == c.id() {
		return err // its own fence is for the one that set it
	}
	return n.restoreValidator(ctx, record.Fence{}, record.Token{Name: tok.Name, ID: c.id()}, was)
}

// notedRestore is what the latest fence noted of the validator that it replaced.
func (n *Namespace) notedRestore(ctx context.Context, id string) (text string, ok bool, err error) {
	note, err := n.noted(ctx, noteRestore+id)
	if err != nil {
		return "", false, err
	}
	text, ok = note.Lookup("restore").StringValueOK()
	return text, ok, nil
}

// carryRestore notes for the collection that takes the place of another what the latest fence noted
// of that one. A cluster that moves a collection takes the fence along, and nobody would know any
// more what to restore: no rollback to it could begin.
func (n *Namespace) carryRestore(ctx context.Context, from, to string) error {
	if to == "" {
		return nil
	}
	text, ok, err := n.notedRestore(ctx, from)
	if err != nil || !ok {
		return err
	}
	if _, has, err := n.notedRestore(ctx, to); err != nil || has {
		return err
	}
	return n.note(ctx, noteRestore+to, bson.D{{Key: "$set", Value: bson.D{{Key: "restore", Value: text}}}})
}

// validation is the present validator of a collection as Unfence takes it.
func (c collection) validation() (string, error) {
	var r restoration
	if v, ok := c.Options.Lookup("validator").DocumentOK(); ok {
		r.Validator = v
	}
	r.Level, _ = c.Options.Lookup("validationLevel").StringValueOK()
	r.Action, _ = c.Options.Lookup("validationAction").StringValueOK()
	return r.text()
}

// fencedCollection returns the collection of a token, which must be a plain one.
func (n *Namespace) fencedCollection(ctx context.Context, tok record.Token) (*collection, error) {
	c, err := n.collectionNamed(ctx, tok.Name)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("collection %s: %w", tok.Name, record.ErrNotFound)
	case c.Type != "collection":
		return nil, &record.UnsupportedError{What: "collection " + n.name + "." + tok.Name, Reason: "it is a " + c.Type}
	}
	if tok.ID != "" {
		uuid, err := collectionUUID(tok.ID)
		if err != nil {
			return nil, err
		}
		if !c.is(uuid) {
			return nil, fmt.Errorf("%s is another collection now (%s instead of %s): %w", tok.Name, c.id(), tok.ID, record.ErrBroken)
		}
	}
	return c, nil
}

func (n *Namespace) fenceValidator(ctx context.Context, f record.Fence) error {
	if _, err := restorationFrom(f.Restore); err != nil {
		return err
	}
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.refuseUnfenced(ctx, f); err != nil {
			return err
		}
		c, err := n.fencedCollection(ctx, f.Token)
		if err != nil {
			return decided(err)
		}
		switch c.fenceMark() {
		case f.To:
		case "":
			// Noted first, so that any controller that finds the fence can remove it. It is
			// the present validator: the application may have another one since Prepare.
			present, err := c.validation()
			if err != nil {
				return err
			}
			err = n.note(ctx, noteRestore+c.id(), bson.D{{Key: "$set", Value: bson.D{
				{Key: "restore", Value: present}, {Key: "name", Value: f.Token.Name},
			}}})
			if err != nil {
				return err
			}
		default:
			// An earlier fence that nobody removed. Its note has the true validator.
		}
		mongos, err := n.isMongos(ctx)
		if err != nil {
			return err
		}
		if mongos && c.fenceMark() != f.To {
			if err := n.setValidator(ctx, f.Token, refusing(closingMark+f.To)); err != nil {
				return err
			}
		}
		// Sent even if it is there already: a command that a majority acknowledged shows
		// that the fence is in force, what a node lists does not.
		if err := n.setValidator(ctx, f.Token, refusing(f.To)); err != nil {
			return err
		}
		if err := n.mark(ctx, f); err != nil {
			return err
		}
		if c, err = n.fencedCollection(ctx, f.Token); err != nil {
			return decided(err)
		}
		if c.fenceMark() != f.To {
			return errors.New("the validator was no longer there when it was confirmed")
		}
		return nil
	})
}

// refusing is the validation that no document passes.
func refusing(mark string) restoration {
	return restoration{
		Validator: mustMarshal(bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{fencePrefix + mark, ""}}}}}),
		Level:     "strict",
		Action:    "error",
	}
}

func (n *Namespace) unfenceValidator(ctx context.Context, f record.Fence) error {
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.noteUnfenced(ctx, f.Token, f.To); err != nil {
			return err
		}
		tok := f.Token
		c, err := n.fencedCollection(ctx, tok)
		if err != nil && tok.ID != "" && (errors.Is(err, record.ErrBroken) || errors.Is(err, record.ErrNotFound)) {
			// The application replaced its collection. The former one is given back wherever it is,
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
			return decided(err)
		}
		switch mark := c.fenceMark(); mark {
		case "":
			return nil
		case f.To, closingMark + f.To:
		default:
			return permanent(fmt.Errorf("it is fenced as %s, not as %s", mark, f.To))
		}
		return n.restoreValidator(ctx, f, tok, c.id())
	})
}

// unfenceCopy gives back the collection that bears the name in the place of the fenced one, if it
// has the fence. A cluster that moves or reshards a collection makes another one with the same
// options, and $out does so: without this the application's writes are refused for good.
func (n *Namespace) unfenceCopy(ctx context.Context, f record.Fence) error {
	c, err := n.collectionNamed(ctx, f.Token.Name)
	if err != nil || c == nil || c.Type != "collection" {
		return err
	}
	if mark := c.fenceMark(); mark != f.To && mark != closingMark+f.To {
		return nil // not of this fence
	}
	return n.restoreValidator(ctx, f, record.Token{Name: f.Token.Name, ID: c.id()}, f.Token.ID)
}

// restoreValidator gives a collection the validator that the fence of collection noted has replaced.
func (n *Namespace) restoreValidator(ctx context.Context, f record.Fence, tok record.Token, noted string) error {
	text, ok, err := n.notedRestore(ctx, noted)
	if err != nil {
		return err
	}
	if !ok {
		text = f.Restore // of Prepare: older, but better than none
	}
	r, err := restorationFrom(text)
	if err != nil {
		return permanent(err)
	}
	if err := n.stopBuilds(ctx, tok.Name); err != nil {
		return err
	}
	return n.setValidator(ctx, tok, r)
}

// setValidator replaces validator, level and action, acknowledged by a majority. What
// was never set is set to its default, which means the same.
func (n *Namespace) setValidator(ctx context.Context, tok record.Token, r restoration) error {
	if r.Validator == nil {
		r.Validator = mustMarshal(bson.D{})
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
	cmd, err := withUUID(cmd, tok)
	if err != nil {
		return err
	}
	return n.change(ctx, n.db, cmd)
}

// noteUnfenced remembers that a fence was removed, before it is.
func (n *Namespace) noteUnfenced(ctx context.Context, tok record.Token, to string) error {
	set := bson.D{{Key: "name", Value: tok.Name}}
	if tok.ID != "" {
		set = append(set, bson.E{Key: "id", Value: tok.ID})
	}
	return n.note(ctx, unfencedNotes+to, bson.D{{Key: "$set", Value: set}})
}

// decided makes errors that no repetition changes permanent.
func decided(err error) error {
	var unsupported *record.UnsupportedError
	if errors.Is(err, record.ErrBroken) || errors.Is(err, record.ErrNotFound) || errors.As(err, &unsupported) {
		return permanent(err)
	}
	return err
}

// mustMarshal marshals literals of this package.
func mustMarshal(d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	return b
}
