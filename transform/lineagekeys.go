package transform

import (
	"context"
	"fmt"
	"maps"

	"dbcontroller.dev/record"
)

// Lineage locates the lineage of one service's records between two versions, in the database of one
// version.
type Lineage struct {
	Reader record.Reader
	Tokens record.Tokens // for the lineage kind and the kinds of records
	Kind   string        // the LineageKind of the spec
}

// FarKeys maps keys of a kind to the keys of the same records in farKind, their kind in the other
// version. It finds the records by their groups in lineage. own is the lineage in the database of
// the keys' version, and far the lineage in the other version's database. Both exist, because each
// database can have been the target. If both know a group, the entry of the later epoch counts. The
// result omits records that the other version does not have, and records that share their group
// with others of their kind.
func FarKeys(ctx context.Context, own, far Lineage, kind, farKind string, keys []record.Key) (map[record.Key]record.Key, error) {
	groups := map[record.Key]*later{}
	names := map[string]*later{}
	take := func(l Lineage, entry func(ref) record.Key, group func(record.Record) (string, error)) error {
		asked := map[record.Key]record.Key{}
		for _, k := range keys {
			asked[entry(ref{kind, k})] = k
		}
		return readEntries(ctx, l, l.Kind, asked, func(k record.Key, r record.Record) error {
			g, err := group(r)
			if err == nil {
				laterOf(groups, k).take(r, g, nil)
			}
			return err
		})
	}
	// In far, lineage describes what was made from the records; in own, what the records were made
	// from. So the roles of members and targets swap.
	err := take(far, memberKey, func(r record.Record) (string, error) { d, err := readDescent(r.Doc); return d.group, err })
	if err == nil {
		err = take(own, targetKey, func(r record.Record) (string, error) { return readTarget(r.Doc) })
	}
	if err != nil {
		return nil, err
	}
	families := func(l Lineage, made func(family) []ref) error {
		asked := map[record.Key]string{}
		for _, g := range groups {
			if g.group != "" {
				asked[groupKey(g.group)] = g.group
			}
		}
		return readEntries(ctx, l, l.Kind, asked, func(g string, r record.Record) error {
			f, err := readFamily(r.Doc)
			if err == nil {
				laterOf(names, g).take(r, "", made(f))
			}
			return err
		})
	}
	// Second read: the groups' entries, which list the records of the other version.
	if err = families(far, func(f family) []ref { return f.targets }); err == nil {
		err = families(own, func(f family) []ref { return f.members })
	}
	if err != nil {
		return nil, err
	}
	out := map[record.Key]record.Key{}
	// Accept only a unique record of the kind. With several, lineage does not show which one is the
	// counterpart.
	for k, g := range groups {
		var found []record.Key
		if of := names[g.group]; of != nil {
			for _, r := range of.refs {
				if r.kind == farKind {
					found = append(found, r.key)
				}
			}
		}
		if len(found) == 1 {
			out[k] = found[0]
		}
	}
	// Lineage that a switch left behind still lists records that were deleted later.
	for _, side := range []struct {
		Lineage
		kind string
		key  func(own, far record.Key) record.Key
	}{{own, kind, func(own, _ record.Key) record.Key { return own }}, {far, farKind, func(_, far record.Key) record.Key { return far }}} {
		there := map[record.Key]bool{}
		asked := map[record.Key]record.Key{}
		for k, f := range out {
			at := side.key(k, f)
			asked[at] = at
		}
		if err := readEntries(ctx, side.Lineage, side.kind, asked, func(k record.Key, r record.Record) error { there[k] = !r.Tombstone; return nil }); err != nil {
			return nil, err
		}
		maps.DeleteFunc(out, func(k, f record.Key) bool { return !there[side.key(k, f)] })
	}
	return out, nil
}

// later holds the newer of the entries that two lineages have.
type later struct {
	guard record.Guard
	group string
	refs  []ref
}

func laterOf[K comparable](all map[K]*later, k K) *later {
	if all[k] == nil {
		all[k] = &later{}
	}
	return all[k]
}

func (l *later) take(r record.Record, group string, refs []ref) {
	// Versions of different epochs cannot be compared, but the later epoch knows the later state.
	if r.Guard.Epoch >= l.guard.Epoch {
		*l = later{guard: r.Guard, group: group, refs: refs}
	}
}

// readEntries reads the records at the asked keys and calls take for each of them.
func readEntries[K any](ctx context.Context, l Lineage, kind string, asked map[record.Key]K, take func(K, record.Record) error) error {
	if _, there := l.Tokens[kind]; !there || len(asked) == 0 {
		return nil // no direction ever wrote to the kind
	}
	req := record.ReadRequest{Tokens: l.Tokens, Guards: true}
	for k := range asked {
		req.Select = append(req.Select, record.Selector{Kind: kind, Key: k})
	}
	snap, err := l.Reader.Read(ctx, req)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	for _, r := range snap.Records {
		if of, ok := asked[r.Key]; ok {
			err := r.Err
			if err == nil {
				err = take(of, r)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
		}
	}
	return nil
}
