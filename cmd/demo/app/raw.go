package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/record"
	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/upgradestate"
)

// rawProcesses reads the processes past the service. strays are
// definitions that belong to no process.
func rawProcesses(ctx context.Context, records raw, version string) (seen workload.Seen, strays []string, err error) {
	if version == oldVersion {
		seen = workload.Seen{}
		err = records(ctx, bbs.KindDesiredLRPs, func(guid string, doc bson.Raw) {
			annotation, _ := doc.Lookup("annotation").StringValueOK()
			seen.Add(guid, annotation)
		})
		return seen, nil, err
	}
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
		for _, id := range definitions[guid] {
			if !holdsText(former, id) {
				rest = append(rest, id)
			}
		}
		seen.Add(guid, outlineOf(annotation, active, rest))
		delete(definitions, guid)
	})
	for guid, ids := range definitions {
		strays = append(strays, guid+"/"+ids[0])
	}
	return seen, strays, err
}

// holdsText reports whether an array has a string.
func holdsText(array bson.RawArray, text string) bool {
	values, _ := array.Values() // of a document that was read whole
	return slices.ContainsFunc(values, func(v bson.RawValue) bool {
		s, ok := v.StringValueOK()
		return ok && s == text
	})
}

// raw reads the records of a managed kind, past the services.
type raw func(ctx context.Context, kind string, each func(id string, doc bson.Raw)) error

// rawStore reads them where only the store knows how they are kept.
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

// rawMongo reads them with the plain driver, past everything that is ours.
func rawMongo(db *mongo.Database, ns upgradestate.Namespace) raw {
	return func(ctx context.Context, kind string, each func(id string, doc bson.Raw)) error {
		return eachRaw(ctx, db, ns, kind, each)
	}
}

// eachRaw reads a managed kind's collection. Tombstones, which end with their direction,
// are no records.
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
		op, _ := doc.Lookup("labels", "operation").StringValueOK()
		seen.Add(oldName(id), "operation "+op)
	})
	return seen, err
}
