package transform

import (
	"fmt"

	"dbcontroller.dev/record"
)

// member is one spec of a part, seen from the middle version.
type member struct {
	spec         Spec
	at           int // index of the spec in its step
	outer, inner Side
	inward       *direction // from the outer version to the middle one
}

// samename is a middle kind that two specs must put into groups of the same name.
type samename struct {
	root, leaf         GroupedKind
	rootSpec, leafSpec string
}

// tie computes the two outer sides of a joined spec, grouped under the root's names.
func (j *joint) tie(p part) (old, fresh Side, same map[string]samename, err error) {
	var as, bs []member
	for _, i := range p.a {
		sp := j.a.specs[i]
		as = append(as, member{sp, i, sp.Old, sp.New, j.aUp})
	}
	for _, i := range p.b {
		sp := j.b.specs[i]
		bs = append(bs, member{sp, i, sp.New, sp.Old, j.bDown})
	}
	same = map[string]samename{}
	switch {
	// One root names the groups of all others, so only one of the two steps may have several specs.
	case len(as) > 1 && len(bs) > 1:
		return old, fresh, nil, fmt.Errorf("transformers %s and %s share kinds of %s with both %s and %s",
			as[0].spec.Name, as[1].spec.Name, j.a.newVersion, bs[0].spec.Name, bs[1].spec.Name)
	// Take the root from the step with one spec. If both have one, prefer leaves that can be tied
	// by key.
	case len(as) > 1 || len(bs) == 1 && !bs[0].single(as[0]) && as[0].single(bs[0]):
		old, err = under(bs[0], as, same)
		return old, bs[0].outer, same, err
	default:
		fresh, err = under(as[0], bs, same)
		return as[0].outer, fresh, same, err
	}
}

// shared returns the middle kinds that m and the root have in common, as m groups them.
func (m member) shared(root member) (ks []GroupedKind) {
	for _, k := range m.inner.Kinds {
		if _, ok := root.inner.kind(k.Name); ok {
			ks = append(ks, k)
		}
	}
	return ks
}

// single reports whether m can be tied to the root by key.
func (m member) single(root member) bool {
	ks := m.shared(root)
	return len(ks) == 1 && ks[0].single() && !m.spec.byContent()
}

// under groups the outer kinds of the leaves under the root's group names. It ties a leaf by key if
// each of its groups has one middle record, because a key leaves no doubt. It ties the others by
// name.
func under(root member, leaves []member, same map[string]samename) (Side, error) {
	var out Side
	byContent := root.spec.byContent()
	for _, leaf := range leaves {
		byContent = byContent || leaf.spec.byContent()
		shared := leaf.shared(root)
		// A key decides the group without reading records. Tying by name has to check every record.
		if leaf.single(root) {
			mid, _ := root.inner.kind(shared[0].Name)
			for _, k := range leaf.outer.Kinds {
				t, err := translate(leaf, k, shared[0], mid, root.spec.byContent())
				if err != nil {
					return out, fmt.Errorf("transformers %s and %s: %w", root.spec.Name, leaf.spec.Name, err)
				}
				out.Kinds = append(out.Kinds, t)
			}
			// Only a record that exists exactly once in each group can carry the group's guard.
			if out.Anchor == nil && mid.single() {
				out.Anchor = translateAnchor(leaf.outer, shared[0], mid)
			}
			continue
		}
		for _, k := range shared {
			mid, _ := root.inner.kind(k.Name)
			same[k.Name] = samename{root: mid, leaf: k, rootSpec: root.spec.Name, leafSpec: leaf.spec.Name}
		}
		out.Kinds = append(out.Kinds, leaf.outer.Kinds...)
		if out.Anchor == nil {
			out.Anchor = leaf.outer.anchor
		}
	}
	switch {
	case byContent:
		out.Anchor = nil // lineage stands for the group
	case out.Anchor == nil:
		return out, fmt.Errorf("transformer %s: no kind that stays has exactly one record in each group", root.spec.Name)
	}
	return out, nil
}

// translate groups a leaf's outer kind under the root's names. It goes through the key of the
// single middle record in each of the leaf's groups. mine and root are the groupings of that middle
// kind on the two sides.
func translate(leaf member, outer, mine, root GroupedKind, byContent bool) (GroupedKind, error) {
	plain := outer.GroupOf == nil && mine.GroupOf == nil
	switch {
	case root.Content != nil:
		if len(leaf.outer.Kinds) > 1 || !outer.single() {
			return outer, fmt.Errorf("%s goes by content, and its records are not made of a single record each", root.Name)
		}
		return GroupedKind{KindSpec: outer.KindSpec, Content: leaf.contentOf(outer, root)}, nil
	// Keys are the groups on both sides already.
	case plain && root.GroupOf == nil:
		return outer, nil
	case !plain && !root.single() && !byContent:
		return outer, fmt.Errorf("the records of a group are found by the beginning of their keys in %s, and the other transformer changes keys", root.Name)
	}
	return GroupedKind{
		KindSpec: outer.KindSpec,
		Single:   outer.single() && root.single(),
		GroupOf: func(k record.Key) (string, error) {
			group, err := outer.groupOf(k)
			if err != nil {
				return "", err
			}
			return root.groupOf(mine.selector(group).Key)
		},
		Select: func(group string) record.Selector {
			s := root.selector(group)
			if s.Prefix { // keys are equal on both sides
				return record.Selector{Kind: outer.Name, Key: s.Key, Prefix: true}
			}
			return outer.selector(mine.groupOr(s.Key))
		},
	}, nil
}

// contentOf returns a function that names the group of an outer record from its middle record. The
// middle record is computed from the outer record alone. So a field that only the middle version
// has cannot decide on a group.
func (m member) contentOf(outer, root GroupedKind) func(record.Record) (string, error) {
	return func(r record.Record) (string, error) {
		group, err := outer.groupOf(r.Key)
		if err != nil {
			return "", err
		}
		// No complement: the group must follow from the record alone, on every controller alike.
		mid, err := m.inward.Transform(GroupID{m.at, group}, Group{group, []record.Record{r}}, Group{Name: group})
		if err != nil {
			return "", err
		}
		for _, x := range mid {
			if x.Kind == root.Name {
				return contentOf(root, x)
			}
		}
		return "", fmt.Errorf("%s makes no %s of it", m.spec.Name, root.Name)
	}
}

func translateAnchor(outer Side, mine, root GroupedKind) func(string) (string, record.Key) {
	return func(group string) (string, record.Key) {
		return outer.anchor(mine.groupOr(root.selector(group).Key))
	}
}

// kind returns the kind with the given name.
func (s Side) kind(name string) (GroupedKind, bool) {
	for _, k := range s.Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return GroupedKind{}, false
}

// anchor is Anchor with its default.
func (s Side) anchor(group string) (string, record.Key) {
	if s.Anchor != nil {
		return s.Anchor(group)
	}
	return s.Kinds[0].Name, record.Key(group)
}

// groupOf is GroupOf with its default.
func (k GroupedKind) groupOf(key record.Key) (string, error) {
	if k.GroupOf == nil {
		return string(key), nil
	}
	return k.GroupOf(key)
}

// groupOr returns the group of a key that was made from a group's name. If the kind rejects the
// key, it returns the key, which selects nothing.
func (k GroupedKind) groupOr(key record.Key) string {
	group, err := k.groupOf(key)
	if err != nil {
		return string(key)
	}
	return group
}

// selector is Select with its default.
func (k GroupedKind) selector(group string) record.Selector {
	s := record.Selector{Key: record.Key(group)}
	if k.Select != nil {
		s = k.Select(group)
	}
	s.Kind = k.Name
	return s
}

// single reports whether a group has at most one record of this kind, found by its key.
func (k GroupedKind) single() bool { return k.Content == nil && (k.GroupOf == nil || k.Single) }
