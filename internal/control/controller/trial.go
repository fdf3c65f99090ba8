package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/extjson"
	"dbcontroller.dev/internal/control/controller/inspect"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/lint"
)

// Try implements api.Trier: it moves a record to another version and back, in memory.
func (a *App) Try(ctx context.Context, req *pb.TryTransformRequest) (*pb.TryTransformResponse, error) {
	there, err := a.registry.Direction(req.FromVersion, req.ToVersion)
	if err != nil {
		return nil, err
	}
	back, err := a.registry.Direction(req.ToVersion, req.FromVersion)
	if err != nil {
		return nil, err
	}
	kind, err := kindToTry(there.SourceKinds(), req)
	if err != nil {
		return nil, err
	}
	r, err := recordToTry(ctx, kind, req.Record)
	if err != nil {
		return nil, err
	}
	t, err := lint.TryWay(there, back, []record.Record{r}, req.Over)
	if err != nil {
		return nil, err
	}
	res := &pb.TryTransformResponse{Was: triedRecords(t.In), There: triedRecords(t.Up), Back: triedRecords(t.Down), Exact: t.Exact}
	for _, d := range t.Differences {
		shown := &pb.TriedDifference{Kind: d.Kind, Path: strings.Join(d.Path, ".")}
		if d.Was.Type != 0 {
			shown.Was = extjson.Value(d.Was)
		}
		if d.Is.Type != 0 {
			shown.Is = extjson.Value(d.Is)
		}
		res.Differences = append(res.Differences, shown)
	}
	// A refused record is a result of the trial.
	if t.Err != nil {
		res.Failed, res.Reason = t.Direction, lint.Reason(t.Err)
	}
	return res, nil
}

// inspector returns the Inspector of the API.
func (a *App) inspector() *inspect.Inspector {
	return &inspect.Inspector{
		Deployment: a.deployment.Get, Records: a.cfg.ShowRecords,
		Space: func(version string) inspect.Space {
			db, configured := a.cfg.Database(version)
			if ns := a.quiet[version]; configured && !db.Disabled && ns != nil {
				return ns
			}
			return nil
		},
		// Before the first attempt to open a database its keys are not known. Sample then fails,
		// because the database is not open.
		Encrypted: func(version string) bool {
			e, ok := a.databases[version].(keys.Encrypted)
			return ok && len(e.KeysHere()) > 0
		},
	}
}

// kindToTry returns the kind of a request. It may be left out if the version has only one.
func kindToTry(kinds []record.KindSpec, req *pb.TryTransformRequest) (string, error) {
	var names []string
	for _, k := range kinds {
		if names = append(names, k.Name); k.Name == req.Kind {
			return k.Name, nil
		}
	}
	if req.Kind == "" && len(names) == 1 {
		return names[0], nil
	}
	return "", fmt.Errorf("kind %q: want one of %s: %s", req.Kind, req.FromVersion, strings.Join(names, ", "))
}

// recordToTry reads the one record of a request.
func recordToTry(ctx context.Context, kind, text string) (record.Record, error) {
	source, err := lint.Open("record", strings.NewReader(text))
	if err != nil {
		return record.Record{}, err
	}
	doc, err := source.Next(ctx)
	if errors.Is(err, io.EOF) {
		return record.Record{}, errors.New("record: it is empty: give one record as Extended JSON")
	} else if err != nil {
		return record.Record{}, err
	}
	if _, err := source.Next(ctx); !errors.Is(err, io.EOF) {
		return record.Record{}, errors.New("record: something follows the record: give one alone")
	}
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		return record.Record{}, errors.New("record: it has no _id: give the stored record with its _id")
	}
	return record.Record{Kind: kind, Key: key, Doc: doc}, nil
}

func triedRecords(rs []record.Record) []*pb.TriedRecord {
	var out []*pb.TriedRecord
	for _, r := range rs {
		out = append(out, &pb.TriedRecord{Kind: r.Kind, Record: extjson.Doc(r.Doc, 0)})
	}
	return out
}
