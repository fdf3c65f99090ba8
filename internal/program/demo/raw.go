package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// rawProcesses reads the processes directly from the database, bypassing the service. strays are
// definitions without a process.
func rawProcesses(ctx context.Context, records raw, version string) (seen workload.Seen, strays []string, err error) {
	if version == oldVersion {
		seen = workload.Seen{}
		err = records(ctx, bbs.KindDesiredLRPs, func(guid string, doc bson.Raw) {
			annotation, _ := doc.Lookup("annotation").StringValueOK()
			seen.Add(guid, annotation)
		})
		return seen, nil, err
	}
	// In v2 each definition is a record of its own. Read them first, then their processes.
	definitions := map[string][]string{}
	err = records(ctx, bbs.KindDefinitions, func(id string, _ bson.Raw) {
		guid, definition, _ := strings.Cut(id, "/")
		definitions[guid] = append(definitions[guid], definition)
	})
	if err != nil {
		return nil, nil, err
	}
	seen = workload.Seen{}
	err = records(ctx, bbs.KindDeployments, func(guid string, doc bson.Raw) {
		annotation, _ := doc.Lookup("annotation").StringValueOK()
		active, _ := doc.Lookup("active_definition_id").StringValueOK()
		former, _ := doc.Lookup("former_definition_ids").ArrayOK()
		var rest []string
		// A former definition may be deleted at any time, so its presence proves nothing.
		for _, id := range definitions[guid] {
			if !holdsText(former, id) {
				rest = append(rest, id)
			}
		}
		seen.Add(guid, outlineOf(annotation, active, rest))
		// Definitions that no deployment claims remain in the map as strays.
		delete(definitions, guid)
	})
	for guid, ids := range definitions {
		strays = append(strays, guid+"/"+ids[0])
	}
	return seen, strays, err
}

// holdsText reports whether an array holds a string.
func holdsText(array bson.RawArray, text string) bool {
	values, _ := array.Values() // of a document that was read completely
	return slices.ContainsFunc(values, func(v bson.RawValue) bool {
		s, ok := v.StringValueOK()
		return ok && s == text
	})
}

// raw reads the records of a managed kind, bypassing the services.
type raw func(ctx context.Context, kind string, each func(id string, doc bson.Raw)) error

// rawStore reads through the store, for backends with a storage form of their own.
func rawStore(client record.Client, tokens record.Tokens) raw {
	return func(ctx context.Context, kind string, each func(id string, doc bson.Raw)) error {
		const page = 1000
		for after := ""; ; {
			recs, err := client.List(ctx, record.ListRequest{Token: tokens[kind], After: after, Limit: page})
			if err != nil {
				return fmt.Errorf("read %s: %w", kind, err)
			}
			for _, rec := range recs {
				after, _ = rec.Key.Name()
				each(after, rec.Doc)
			}
			if len(recs) < page {
				return nil
			}
		}
	}
}

// rawMongo reads with the plain driver, so that an error in the store cannot hide one in the data.
func rawMongo(db *mongo.Database, ns upgradestate.Namespace) raw {
	return func(ctx context.Context, kind string, each func(id string, doc bson.Raw)) error {
		return eachRaw(ctx, db, ns, kind, each)
	}
}

// eachRaw reads a managed kind's collection. It skips tombstones, which mark deletes and are purged
// with their direction.
func eachRaw(ctx context.Context, db *mongo.Database, ns upgradestate.Namespace, kind string, each func(id string, doc bson.Raw)) error {
	k, ok := ns.Kind(kind)
	if !ok {
		return fmt.Errorf("read %s: the deployment does not have it", kind)
	}
	cursor, err := db.Collection(k.Physical).Find(ctx, bson.D{{Key: "_dbc.x", Value: bson.D{{Key: "$ne", Value: true}}}})
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // read whole
	for cursor.Next(ctx) {
		id, _ := cursor.Current.Lookup("_id").StringValueOK()
		each(id, cursor.Current)
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	return nil
}

func rawSecrets(ctx context.Context, records raw) (workload.Seen, error) {
	seen := workload.Seen{}
	err := records(ctx, secrets.Kind, func(id string, doc bson.Raw) {
		op, _ := rawdoc.Lookup(doc, "labels", "operation").StringValueOK()
		seen.Add(oldName(id), "operation "+op)
	})
	return seen, err
}
