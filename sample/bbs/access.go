package bbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// attempts bounds how often a change is tried when others change the same process.
const attempts = 10

// maxDefinitions bounds the definitions of a process: a group is written whole.
const maxDefinitions = 100

// change describes a read-modify-write of the record that carries the modification tag.
type change struct {
	kind string // of that record
	guid string
	want *tagDoc // what the caller expects, nil for whatever is there
	// definitions asks for the definitions too. They change only together with the tag,
	// so the one comparison that the write makes holds for them as well.
	definitions bool
	// apply changes doc and returns further mutations of the same write. A nil doc deletes.
	apply func(p process, doc bson.D) (bson.D, []record.Mutation, error)
}

// run makes the change, comparing the whole tag: an index alone could be that of a
// process which was deleted and made anew. It returns the process as written.
func (c change) run(ctx context.Context, store Store) (process, error) {
	var err error
	for range attempts {
		var p process
		p, err = c.try(ctx, store)
		if !errors.Is(err, record.ErrMismatch) || c.want != nil {
			return p, err
		}
	}
	return process{}, err
}

func (c change) try(ctx context.Context, store Store) (process, error) {
	rec, err := store.Get(ctx, c.kind, c.guid)
	if err != nil {
		return process{}, err
	}
	var doc bson.D
	if err := bson.Unmarshal(rec.Doc, &doc); err != nil {
		return process{}, fmt.Errorf("%w: %w", errStored, err)
	}
	read, err := readLRP(rec.Doc)
	if err != nil {
		return process{}, err
	}
	tag, err := rec.Doc.LookupErr(fieldTag)
	if err != nil {
		return process{}, fmt.Errorf("%w: no %s", errStored, fieldTag)
	}
	if c.want != nil && *c.want != read.Tag {
		return process{}, fmt.Errorf("%s: tag is %s/%d: %w", c.guid, read.Tag.Epoch, read.Tag.Index, errStale)
	}
	p := process{guid: c.guid, deployment: rec.Doc}
	if c.definitions {
		if p.definitions, err = definitionsOf(ctx, store, c.guid); err != nil {
			return process{}, err
		}
	}
	doc, more, err := c.apply(p, doc)
	if err != nil {
		return process{}, err
	}
	m := record.Mutation{Kind: c.kind, Key: record.StringKey(c.guid), Match: &record.Match{Path: fieldTag, Value: tag}}
	if doc != nil {
		if doc, err = bump(doc); err != nil {
			return process{}, err
		}
		if m.Doc, err = encode(doc); err != nil {
			return process{}, err
		}
	}
	if err := store.Write(ctx, append([]record.Mutation{m}, more...)); err != nil {
		return process{}, err
	}
	p.deployment = m.Doc
	for _, add := range more {
		if add.Doc != nil {
			p.definitions = append(p.definitions, record.Record{Kind: add.Kind, Key: add.Key, Doc: add.Doc})
		}
	}
	return p, nil
}

// bump counts the tag's index up, in its place.
func bump(doc bson.D) (bson.D, error) {
	for i := range doc {
		if doc[i].Key != fieldTag {
			continue
		}
		tag, ok := doc[i].Value.(bson.D)
		if !ok {
			break
		}
		for j := range tag {
			switch index := tag[j].Value.(type) {
			case int64:
				if tag[j].Key == "index" {
					tag[j].Value = index + 1
					return doc, nil
				}
			case int32:
				if tag[j].Key == "index" {
					tag[j].Value = int64(index) + 1
					return doc, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("%w: %s has no index", errStored, fieldTag)
}

// mutable sets what both versions can change.
func mutable(doc bson.D, instances *int32, routes map[string]string, hasRoutes bool, annotation *string) bson.D {
	if instances != nil {
		doc = set(doc, "instances", *instances)
	}
	if hasRoutes {
		doc = set(doc, "routes", routesDoc(routes))
	}
	if annotation != nil {
		doc = set(doc, "annotation", *annotation)
	}
	return doc
}

func definitionsOf(ctx context.Context, store Store, guid string) ([]record.Record, error) {
	return store.List(ctx, KindDefinitions, guid+"/", "", 0)
}

// load reads a v2 process consistently: definitions change only with the deployment's
// tag, so a deployment that is the same before and after has these definitions.
func load(ctx context.Context, store Store, guid string) (process, error) {
	before, err := store.Get(ctx, KindDeployments, guid)
	if err != nil {
		return process{}, err
	}
	for range attempts {
		definitions, err := definitionsOf(ctx, store, guid)
		if err != nil {
			return process{}, err
		}
		after, err := store.Get(ctx, KindDeployments, guid)
		if err != nil {
			return process{}, err
		}
		if bytes.Equal(before.Doc, after.Doc) {
			return process{guid: guid, deployment: after.Doc, definitions: definitions}, nil
		}
		before = after
	}
	return process{}, fmt.Errorf("%s changes too fast to be read: %w", guid, record.ErrMismatch)
}

// group is the process as the transformers take it.
func (p process) group() transform.Group {
	g := transform.Group{Name: string(record.StringKey(p.guid)), Records: p.definitions}
	g.Records = append(g.Records[:len(g.Records):len(g.Records)], record.Record{Kind: KindDeployments, Key: record.StringKey(p.guid), Doc: p.deployment})
	return g
}

// remove deletes a v2 process with all its definitions.
func remove(ctx context.Context, store Store, guid string) error {
	_, err := change{kind: KindDeployments, guid: guid, definitions: true, apply: func(p process, _ bson.D) (bson.D, []record.Mutation, error) {
		more := make([]record.Mutation, 0, len(p.definitions))
		for _, d := range p.definitions {
			more = append(more, record.Mutation{Kind: d.Kind, Key: d.Key})
		}
		return nil, more, nil
	}}.run(ctx, store)
	return err
}

// Sizes of pages, and how many records one request looks through for those of a domain.
const (
	defaultPage = 100
	maxPage     = 1000
	maxScan     = 10_000
)

// listRequest is a list request of either version.
type listRequest interface {
	GetDomain() string
	GetPrefix() string
	GetPageSize() int32
	GetPageToken() string
}

// errGone: a record of a page was deleted while the page was made.
var errGone = errors.New("deleted meanwhile")

// page calls add for the records of one page. next is the token of the page after it,
// the name of the last record that was looked at.
func page(ctx context.Context, store Store, kind string, req listRequest, add func(guid string, doc bson.Raw, read lrpDoc) error) (next string, err error) {
	size := int(req.GetPageSize())
	switch {
	case size < 0 || size > maxPage:
		return "", invalid("page_size is %d, must be 0 to %d", size, maxPage)
	case size == 0:
		size = defaultPage
	}
	after, found := req.GetPageToken(), 0
	for scanned := 0; scanned < maxScan; {
		recs, err := store.List(ctx, kind, req.GetPrefix(), after, size)
		if err != nil {
			return "", err
		}
		for _, r := range recs {
			guid, ok := r.Key.Name()
			if !ok {
				return "", fmt.Errorf("%w: key %s is not a string", errStored, r.Key)
			}
			after = guid
			read, err := readLRP(r.Doc)
			if err != nil {
				return "", fmt.Errorf("%s: %w", guid, err)
			}
			if req.GetDomain() != "" && read.Domain != req.GetDomain() {
				continue
			}
			switch err := add(guid, r.Doc, read); {
			case errors.Is(err, errGone):
				continue
			case err != nil:
				return "", err
			}
			if found++; found == size {
				return after, nil
			}
		}
		if len(recs) < size {
			return "", nil
		}
		scanned += len(recs)
	}
	return after, nil
}
