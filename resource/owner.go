package resource

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
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
	adopt(of patterns, c child) error
	// touch returns the writes that change the revision of one resource and of its owners.
	touch(ctx context.Context, name string) ([]record.Mutation, error)
	// owning returns the kind of the table.
	owning() string
}

// child is a table whose resources belong to resources of another table.
type child interface {
	// below adds to a removal all resources below a deleted parent. Resources that must not be
	// deleted with their parent are an error.
	below(ctx context.Context, r *removal, parent string) error
}

// maxChildren bounds how many records are deleted or changed together with a resource, in one
// transaction.
const maxChildren = 10_000

func (t *Table[M]) adopt(of patterns, c child) error {
	if !of.hasParent() || of.parent().String() != t.pattern.String() {
		return fmt.Errorf("the Pattern %q is not one collection and one id below %q, the Pattern of its Owner", of, t.pattern)
	}
	t.children = append(t.children, c)
	return nil
}

func (t *Table[M]) owning() string { return t.cfg.Kind }

func (t *Table[M]) touch(ctx context.Context, name string) ([]record.Mutation, error) {
	own, err := t.touchOne(ctx, name)
	if err != nil {
		return nil, err
	}
	owners, err := t.touchOwner(ctx, name)
	return append(owners, own), err
}

// touchOne returns the write that changes the revision of one resource.
func (t *Table[M]) touchOne(ctx context.Context, name string) (m record.Mutation, err error) {
	rec, err := t.store.Get(ctx, t.cfg.Kind, name)
	if err != nil {
		return m, about(name, err)
	}
	match, err := t.matching(rec.Doc)
	if err != nil {
		return m, about(name, err)
	}
	msg, err := t.Decode(rec)
	if err != nil {
		return m, err
	}
	// The revision changes although the content does not. A conditional update of the resource then
	// fails and reads what depends on it again.
	t.cfg.Revision.Next(msg)
	head, _ := t.split(msg)
	// Its own parts stay as they are.
	doc, err := protodoc.Merge(rec.Doc, head)
	if err != nil {
		return m, about(name, fmt.Errorf("%w: %w", apiversion.ErrStored, err))
	}
	if doc, err = t.formed(doc, false); err != nil {
		return m, about(name, err)
	}
	return record.Mutation{Kind: t.cfg.Kind, Key: rec.Key, Doc: doc, Match: as(rec.Doc, doc, match)}, nil
}

// touchOwner returns the writes that change the owners of a resource. It returns none without an
// Owner.
func (t *Table[M]) touchOwner(ctx context.Context, name string) ([]record.Mutation, error) {
	if t.cfg.Owner.Table == nil {
		return nil, nil
	}
	return t.cfg.Owner.Table.touch(ctx, t.parentOf(name))
}

// parentOf returns the name of a resource's parent. A name is {parent}/{collection}/{id}.
func (t *Table[M]) parentOf(name string) string {
	return strings.TrimSuffix(name[:strings.LastIndex(name, "/")], "/"+t.pattern.collection())
}

func (t *Table[M]) below(ctx context.Context, r *removal, parent string) error {
	prefix := parent + "/" + t.pattern.collection() + "/"
	names, err := t.deletions(ctx, r, t.cfg.Kind, prefix)
	if err != nil {
		return err
	}
	if len(names) > 0 && t.cfg.Owner.Refuse {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s has %s: delete them first", parent, t.pattern.collection()))
	}
	// Parts must not outlive their resource.
	if t.cfg.Parts != nil {
		if _, err := t.deletions(ctx, r, t.cfg.Parts.Kind, prefix); err != nil {
			return err
		}
	}
	if len(t.children) == 0 && len(t.referrers) == 0 {
		return nil
	}
	// Grandchildren must not outlive their parent, and references must not outlive what they name.
	for _, name := range names {
		if err := t.follow(ctx, r, name); err != nil {
			return err
		}
	}
	return nil
}

// deletions adds a deletion of each record of a kind whose name has a prefix, and returns the names.
// The records need no condition of their own: to create or name one changes its owner, on which the
// removal has a condition.
func (t *Table[M]) deletions(ctx context.Context, r *removal, kind, prefix string) (names []string, err error) {
	const batch = 1000
	for after := ""; ; {
		recs, more, err := t.list(ctx, kind, prefix, after, batch, fetchBytes)
		if err != nil {
			return nil, apiversion.Known(err)
		}
		for _, rec := range recs {
			if after, err = nameOf(rec); err != nil {
				return nil, err
			}
			p := place{kind, record.StringKey(after)} // rec.Key may keep the document
			if _, gone := r.gone[p]; gone {
				continue
			}
			delete(r.cleared, p)
			r.gone[p] = record.Mutation{Kind: kind, Key: p.key}
			names = append(names, after)
			// The limit is checked for each record, so that a huge parent costs neither time nor
			// memory.
			if err := r.keep(ctx, 2*len(after)); err != nil {
				return nil, err
			}
		}
		if !more || len(recs) == 0 {
			return names, nil
		}
	}
}
