package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
	"dbcontroller.dev/record"
)

// list lists the collections of a database of the application: those that move, from their places, and
// the others. All are in the first batch.
func (p *Proxy) list(ctx context.Context, c command) bsoncore.Document {
	rest, failed := p.listAt(ctx, p.home, c, c.msg.Body)
	if failed != nil {
		return failed
	}
	batch := bsoncore.NewArrayBuilder()
	for _, doc := range rest {
		// After a switch the old collection, or a view, still has the name here. List the served one instead.
		if name, _ := text(doc, "name"); !p.hidden(c.database, name) {
			batch.AppendDocument(doc)
		}
	}
	for _, d := range p.deployed {
		if d.cfg.Database != c.database {
			continue
		}
		moved, failed := p.listMoved(ctx, d, c)
		if failed != nil {
			return failed
		}
		for _, doc := range moved {
			batch.AppendDocument(doc)
		}
	}
	cursor := bsoncore.NewDocumentBuilder().AppendArray("firstBatch", batch.Build()).AppendInt64("id", 0).
		AppendString("ns", c.database+".$cmd.listCollections").Build()
	return bsoncore.NewDocumentBuilder().AppendDocument("cursor", cursor).AppendDouble("ok", 1).Build()
}

// hidden reports whether the application must not find a collection of its database at home: one that moves, or
// one of dbcontroller's own beside it. A backup would contain these, and restore them over newer ones.
func (p *Proxy) hidden(database, collection string) bool {
	if strings.HasPrefix(collection, ownPrefix) || collection == ofViews || p.deployment(command{database: database, collection: collection}) != nil {
		return true
	}
	kind, _, ok := record.KindOfPhysical(collection)
	return ok && slices.ContainsFunc(p.deployed, func(d *deployed) bool {
		return d.cfg.Database == database && slices.Contains(slices.Collect(maps.Values(d.cfg.Collections)), kind)
	})
}

// ownPrefix begins the names of dbcontroller's own collections. See docs/formats.md.
const ownPrefix = "dbc_"

// ofViews is the collection in which a server keeps the views of a database. It is made by the first view, also by
// one of a fence. The views themselves are in the list.
const ofViews = "system.views"

// listMoved lists the collections of a deployment by the application's names. A reply that is not nil is an
// error.
func (p *Proxy) listMoved(ctx context.Context, d *deployed, c command) (out []bsoncore.Document, failed bsoncore.Document) {
	err := d.read(ctx, func(ctx context.Context, at place) error {
		out = nil
		body, err := inPlace(at.names, c.msg.Body)
		if err != nil {
			failed = failure(codeIllegalOperation, err.Error())
			return nil
		}
		var moved []bsoncore.Document
		if moved, failed = p.listAt(ctx, at.cluster, c, body); failed != nil {
			return nil
		}
		faces := map[string]string{}
		for face, name := range at.names.To {
			faces[name] = face
		}
		for _, doc := range moved {
			name, _ := text(doc, "name")
			if face, ok := faces[name]; ok {
				out = append(out, renamed(doc, face))
			}
		}
		return nil
	})
	if err != nil {
		return nil, failure(codeHostUnreachable, err.Error())
	}
	return out, failed
}

// inPlace returns a listCollections with the names of a place. A filter by one name is the one that
// drivers send.
func inPlace(m names.Map, body bsoncore.Document) (bsoncore.Document, error) {
	filter := bsoncore.Document(nil)
	if v, err := body.LookupErr("filter"); err == nil {
		filter, _ = v.DocumentOK()
	}
	rest, err := without(body, "$db", "filter")
	if err != nil {
		return nil, err
	}
	if filter != nil {
		if filter, err = inFilter(m, filter); err != nil {
			return nil, err
		}
		if rest, err = with(rest, "filter", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: filter}); err != nil {
			return nil, err
		}
	}
	return with(rest, "$db", bsoncore.Value{Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, m.Place)})
}

// inFilter returns a filter of listCollections with the names of a place. Any other condition on names than
// equality would choose by names that the application does not know, so it is refused.
func inFilter(m names.Map, filter bsoncore.Document) (bsoncore.Document, error) {
	elems, err := filter.Elements()
	if err != nil {
		return nil, err
	}
	// Collections that do not move are at home. Such a name must not find a collection of the place.
	to := func(name string) string { return m.To[name] }
	b := bsoncore.NewDocumentBuilder()
	for _, e := range elems {
		name, isText := e.Value().StringValueOK()
		condition, _ := e.Value().DocumentOK()
		if v, err := condition.LookupErr("$eq"); err == nil && single(condition) {
			name, isText = v.StringValueOK()
		}
		list, err := condition.LookupErr("$in")
		switch {
		case strings.HasPrefix(e.Key(), "$"):
			return nil, fmt.Errorf("a filter by %s cannot be evaluated by the application's names: list all, and choose among them", e.Key())
		case e.Key() != "name":
			b.AppendValue(e.Key(), e.Value())
		case isText:
			b.AppendString("name", to(name))
		case err == nil && list.Type == bsoncore.TypeArray && single(condition):
			values, err := list.Array().Values()
			if err != nil {
				return nil, err
			}
			mapped := bsoncore.NewArrayBuilder()
			for _, v := range values {
				if name, ok := v.StringValueOK(); ok {
					mapped.AppendString(to(name))
				} else {
					mapped.AppendValue(v)
				}
			}
			b.AppendDocument("name", bsoncore.NewDocumentBuilder().AppendArray("$in", mapped.Build()).Build())
		default:
			return nil, errors.New("a filter by name can give one name, or a list by $in: list all, and choose among them")
		}
	}
	return b.Build(), nil
}

// single reports whether a document has one element.
func single(doc bsoncore.Document) bool {
	_, err := doc.IndexErr(1)
	return err != nil
}

// renamed returns a document with another name.
func renamed(doc bsoncore.Document, name string) bsoncore.Document {
	elems, err := doc.Elements()
	if err != nil {
		return doc
	}
	b := bsoncore.NewDocumentBuilder()
	for _, e := range elems {
		if e.Key() == "name" {
			b.AppendString("name", name)
		} else {
			b.AppendValue(e.Key(), e.Value())
		}
	}
	return b.Build()
}

func text(doc bsoncore.Document, key string) (string, bool) {
	v, err := doc.LookupErr(key)
	if err != nil {
		return "", false
	}
	return v.StringValueOK()
}

// listAt lists all collections that a command asks for in a cluster. A reply that is not nil is an
// error.
func (p *Proxy) listAt(ctx context.Context, cluster *upstream.Cluster, c command, body bsoncore.Document) (docs []bsoncore.Document, failed bsoncore.Document) {
	reply, server, err := p.exchange(ctx, c.user, cluster, upstream.Want{}, request(body))
	for {
		if err != nil {
			return nil, failure(codeHostUnreachable, err.Error())
		}
		if !succeeded(reply) {
			return nil, reply
		}
		batch, bad := batchOf(reply)
		if bad != nil {
			return nil, failure(codeIllegalOperation, bad.Error())
		}
		docs = append(docs, batch...)
		id := cursorOf(reply)
		if id == 0 {
			return docs, nil
		}
		database, _ := text(body, "$db")
		b := bsoncore.NewDocumentBuilder().AppendInt64("getMore", id).AppendString("collection", "$cmd.listCollections")
		more := c.inherit(b).AppendString("$db", database).Build()
		reply, _, err = p.exchange(ctx, c.user, cluster, upstream.Want{At: server.address}, request(more))
	}
}

// batchOf returns the documents in the cursor of a reply.
func batchOf(reply bsoncore.Document) (docs []bsoncore.Document, err error) {
	v, err := reply.LookupErr("cursor")
	if err != nil {
		return nil, err
	}
	cursor, ok := v.DocumentOK()
	if !ok {
		return nil, errors.New("a reply without a cursor")
	}
	for _, key := range []string{"firstBatch", "nextBatch"} {
		v, err := cursor.LookupErr(key)
		if err != nil {
			continue
		}
		list, ok := v.ArrayOK()
		if !ok {
			continue
		}
		values, err := list.Values()
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			if doc, ok := v.DocumentOK(); ok {
				docs = append(docs, doc)
			}
		}
	}
	return docs, nil
}
