package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// leg is one way between a source and scratch collections.
type leg struct {
	dir   transform.Direction
	from  record.Reader
	toks  record.Tokens // of from
	to    *scratch
	epoch uint64
	load  bool
}

// bring brings groups as the engine does. failed says of each that could not be brought why.
func (l leg) bring(ctx context.Context, ids []transform.GroupID) (failed map[transform.GroupID]error, err error) {
	failed = map[transform.GroupID]error{}
	var groups, units []transform.GroupID
	for _, id := range ids {
		if l.dir.LineageKind(id.Spec) != "" {
			units = append(units, id)
		} else {
			groups = append(groups, id)
		}
	}
	if err := l.bringGroups(ctx, groups, failed); err != nil {
		return nil, err
	}
	return failed, l.bringUnits(ctx, units, failed)
}

func (l leg) bringGroups(ctx context.Context, ids []transform.GroupID, failed map[transform.GroupID]error) error {
	if len(ids) == 0 {
		return nil
	}
	src, version, err := transform.ReadSource(ctx, l.from, l.dir, l.toks, ids, record.Version{})
	if err != nil {
		return err
	}
	wanting := slices.DeleteFunc(slices.Clone(ids), func(id transform.GroupID) bool { return !l.dir.NeedsHave(id) })
	have, err := transform.ReadTarget(ctx, l.to, l.dir, l.to.toks, wanting)
	if err != nil {
		return err
	}
	batch := record.Batch{Epoch: l.epoch}
	var written []transform.GroupID
	for _, id := range ids {
		out, err := l.dir.Transform(id, src[id], have[id].Group)
		if err != nil {
			failed[id] = err
			continue
		}
		w := record.GroupWrite{Group: id.Name, Version: version, Anchor: -1}
		kind, key := l.dir.Anchor(id)
		for _, r := range out {
			if r.Kind == kind && r.Key == key {
				w.Anchor = len(w.Writes)
			}
			w.Writes = append(w.Writes, record.Write{Kind: r.Kind, Key: r.Key, Doc: r.Doc})
		}
		if w.Anchor < 0 {
			w.Anchor = len(w.Writes)
			w.Writes = append(w.Writes, record.Write{Kind: kind, Key: key})
		}
		batch.Groups, written = append(batch.Groups, w), append(written, id)
	}
	results, err := l.to.write(ctx, batch, l.load)
	if err != nil || len(written) == 0 {
		return err
	}
	var again record.Batch
	var againIDs []transform.GroupID
	for i, r := range results {
		switch r.Outcome {
		case record.Applied:
		case record.Refused:
			failed[written[i]] = r.Err
		case record.Stale, record.Changed:
			again.Groups, againIDs = append(again.Groups, batch.Groups[i]), append(againIDs, written[i])
		default:
			return fmt.Errorf("write to scratch collections: %v", r.Outcome)
		}
	}
	if len(againIDs) == 0 {
		return nil
	}
	// Load says the same of what is there and of what collides; Apply tells them apart.
	again.Epoch = l.epoch
	if results, err = l.to.write(ctx, again, false); err != nil {
		return err
	}
	for i, r := range results {
		switch r.Outcome {
		case record.Applied:
		case record.Refused:
			failed[againIDs[i]] = r.Err
		case record.Stale, record.Changed:
			return errDisturbed
		default:
			return fmt.Errorf("write to scratch collections: %v", r.Outcome)
		}
	}
	return nil
}

// errDisturbed: somebody else has written to scratch collections. Begin again with others.
var errDisturbed = errors.New("somebody else writes to our scratch collections: it is tried again")

func (l leg) bringUnits(ctx context.Context, ids []transform.GroupID, failed map[transform.GroupID]error) error {
	r := transform.Resolver{
		Direction: l.dir, Source: l.from, Target: l.to, SourceTokens: l.toks, TargetTokens: l.to.toks,
		Epoch: l.epoch, Apart: map[transform.GroupID]bool{},
	}
	for len(ids) > 0 {
		cs, left, err := r.Resolve(ctx, ids, record.Version{})
		if err != nil {
			return err
		}
		for i := range cs {
			c := &cs[i]
			if len(c.Failed) == 0 && len(c.Write.Writes) > 0 {
				results, err := l.to.write(ctx, record.Batch{Epoch: l.epoch, Groups: []record.GroupWrite{c.Write}}, false)
				if err != nil {
					return err
				}
				switch results[0].Outcome {
				case record.Applied:
				case record.Refused:
					c.Refuse(results[0].Err)
				case record.Stale, record.Changed:
					return errDisturbed
				default:
					return fmt.Errorf("write to scratch collections: %v", results[0].Outcome)
				}
			}
			if len(c.Failed) == 0 {
				continue
			}
			for _, f := range c.Failed {
				failed[f.Unit], r.Apart[f.Unit] = f.Err, true
			}
			for _, id := range c.Rest() {
				if !r.Apart[id] {
					left = append(left, id)
				}
			}
		}
		ids = left
	}
	return nil
}

// differences names the records of want that got has otherwise or not at all, and those
// that got has beyond them. As the laws of transformers have it, a round trip may leave the
// fields of a document in another order.
func differences(want, got []record.Record) []string {
	type at struct {
		kind string
		key  record.Key
	}
	left := map[at]record.Record{}
	for _, r := range got {
		left[at{r.Kind, r.Key}] = r
	}
	var out []string
	for _, r := range want {
		have, ok := left[at{r.Kind, r.Key}]
		delete(left, at{r.Kind, r.Key})
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s %s is missing", r.Kind, r.Key))
		case !sameFields(have.Doc, r.Doc):
			out = append(out, fmt.Sprintf("%s %s has changed", r.Kind, r.Key))
		}
	}
	for k := range left {
		out = append(out, fmt.Sprintf("%s %s was not there before", k.kind, k.key))
	}
	slices.Sort(out)
	return out
}

// sameFields reports whether two documents have the same fields, in any order.
func sameFields(a, b bson.Raw) bool {
	if bytes.Equal(a, b) {
		return true
	}
	as, errA := a.Elements()
	bs, errB := b.Elements()
	if errA != nil || errB != nil || len(as) != len(bs) {
		return false
	}
	byKey := make(map[string]bson.RawValue, len(bs))
	for _, e := range bs {
		byKey[e.Key()] = e.Value()
	}
	for _, e := range as {
		x := e.Value()
		y, there := byKey[e.Key()]
		delete(byKey, e.Key())                                                    // a field may be there twice
		nested := x.Type == bson.TypeEmbeddedDocument || x.Type == bson.TypeArray // the keys of an array are its order
		switch {
		case !there || x.Type != y.Type:
			return false
		case !nested && !bytes.Equal(x.Value, y.Value), nested && !sameFields(x.Value, y.Value):
			return false
		}
	}
	return true
}
