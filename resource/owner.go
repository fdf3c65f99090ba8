package resource

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// Owner makes the resources of a table children of the resources of another table. Each change of
// a child also changes the revision of its parent, in the same transaction.
//
// Another version of the API may hold the children as a list inside the parent. Its conditional
// update compares the revision of the parent. Without an Owner that update does not notice a child
// that was created meanwhile, and deletes it.
type Owner struct {
	// Table is the table of the parents, over the same store. Its pattern is the pattern of the
	// children without the last collection and id.
	Table Owning
	// Refuse refuses to delete a parent that has children, with FAILED_PRECONDITION. Otherwise
	// the children are deleted together with their parent.
	Refuse bool
}

// Owning is a Table whose resources can have children.
type Owning interface {
	// adopt registers children. It fails where their pattern is not below this table's.
	adopt(of pattern, c child) error
	// touch returns the writes that change the revision of one resource and of its owners.
	touch(ctx context.Context, name string) ([]record.Mutation, error)
}

// child is a table whose resources belong to resources of another table.
type child interface {
	// below returns the deletions of all resources below a parent, with their parts and children.
	// Resources that must not be deleted with their parent are an error.
	below(ctx context.Context, parent string) ([]record.Mutation, error)
}

// maxChildren bounds how many records are deleted together with a parent. They are deleted in one
// transaction.
const maxChildren = 10_000

func (t *Table[M]) adopt(of pattern, c child) error {
	if !of.hasParent() || of.parent().String() != t.pattern.String() {
		return fmt.Errorf("the Pattern %q is not one collection and one id below %q, the Pattern of its Owner", of, t.pattern)
	}
	t.children = append(t.children, c)
	return nil
}

func (t *Table[M]) touch(ctx context.Context, name string) ([]record.Mutation, error) {
	rec, err := t.store.Get(ctx, t.cfg.Kind, name)
	if err != nil {
		return nil, about(name, err)
	}
	match, err := t.matching(rec.Doc)
	if err != nil {
		return nil, about(name, err)
	}
	m, err := t.Decode(rec)
	if err != nil {
		return nil, err
	}
	// The revision of the parent changes although its content does not. A conditional update of the
	// parent then fails and reads the children again.
	t.cfg.Revision.Next(m)
	head, _ := t.split(m)
	// The parent's own parts stay as they are.
	doc, err := protodoc.Merge(rec.Doc, head)
	if err != nil {
		return nil, about(name, fmt.Errorf("%w: %w", apiversion.ErrStored, err))
	}
	if doc, err = t.formed(doc, false); err != nil {
		return nil, about(name, err)
	}
	owners, err := t.touchOwner(ctx, name)
	return append(owners, record.Mutation{Kind: t.cfg.Kind, Key: rec.Key, Doc: doc, Match: as(rec.Doc, doc, match)}), err
}

// touchOwner returns the writes that change the owners of a resource. It returns none without an
// Owner.
func (t *Table[M]) touchOwner(ctx context.Context, name string) ([]record.Mutation, error) {
	if t.cfg.Owner.Table == nil {
		return nil, nil
	}
	// A name is {parent}/{collection}/{id}.
	parent := strings.TrimSuffix(name[:strings.LastIndex(name, "/")], "/"+t.pattern.collection())
	return t.cfg.Owner.Table.touch(ctx, parent)
}

func (t *Table[M]) below(ctx context.Context, parent string) ([]record.Mutation, error) {
	prefix := parent + "/" + t.pattern.collection() + "/"
	ms, err := t.deletions(ctx, t.cfg.Kind, prefix)
	if err != nil {
		return nil, err
	}
	if len(ms) > 0 && t.cfg.Owner.Refuse {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s has %s: delete them first", parent, t.pattern.collection()))
	}
	// Parts must not outlive their resource.
	if t.cfg.Parts != nil {
		parts, err := t.deletions(ctx, t.cfg.Parts.Kind, prefix)
		if err != nil {
			return nil, err
		}
		ms = append(ms, parts...)
	}
	if len(t.children) == 0 {
		return ms, nil
	}
	// Grandchildren must not outlive their parent.
	for _, m := range ms {
		if m.Kind != t.cfg.Kind {
			continue
		}
		name, _ := m.Key.Name()
		more, err := t.deleteChildren(ctx, name)
		if err != nil {
			return nil, err
		}
		if ms = append(ms, more...); len(ms) > maxChildren {
			return nil, tooMany(parent)
		}
	}
	return ms, nil
}

// deleteChildren returns the deletions of all children of a resource.
func (t *Table[M]) deleteChildren(ctx context.Context, name string) ([]record.Mutation, error) {
	var ms []record.Mutation
	for _, c := range t.children {
		more, err := c.below(ctx, name)
		if err != nil {
			return nil, err
		}
		if ms = append(ms, more...); len(ms) > maxChildren {
			return nil, tooMany(name)
		}
	}
	return ms, nil
}

func tooMany(name string) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s has more than %d records below it, which is more than one transaction deletes: delete some of them first", name, maxChildren))
}

// deletions returns a deletion for each record of a kind whose name has a prefix.
func (t *Table[M]) deletions(ctx context.Context, kind, prefix string) ([]record.Mutation, error) {
	const batch = 1000
	const each = 128 // of a mutation, next to its key
	read := memory.ReadsOf(ctx)
	// The request may hold other reads already, which must stay counted.
	held := read.Held()
	var ms []record.Mutation
	for after := ""; ; {
		recs, more, err := t.list(ctx, kind, prefix, after, batch, fetchBytes)
		if err != nil {
			return nil, apiversion.Known(err)
		}
		for _, rec := range recs {
			if after, err = nameOf(rec); err != nil {
				return nil, err
			}
			ms = append(ms, record.Mutation{Kind: kind, Key: record.StringKey(after)}) // rec.Key may keep the document
			held += int64(len(after) + each)
		}
		read.Keep(held) // only the keys are kept
		switch {
		// The limit is checked for each page, so that a huge parent costs neither time nor memory.
		case len(ms) > maxChildren:
			return nil, tooMany(strings.TrimSuffix(prefix, "/"))
		case !more:
			return ms, nil
		}
	}
}
