package appclient

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/encoding/protojson"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// memory is a file with the location that was open last, and with the identities that its
// collections had. The location alone would not do: the version may have been retired since,
// and its names belong to others. A collection that still bears its name and its identity is
// the one that the application may write, or one whose fence refuses it.
type memory struct {
	file       string // empty: none
	deployment string // whose it must be; empty: that of any
}

// memoryFormat is of the file.
const memoryFormat = 1

type remembered struct {
	Format     int               `json:"format"`
	Deployment string            `json:"deployment"`
	Location   json.RawMessage   `json:"location"`
	Identities map[string]string `json:"identities"` // of collections, by kind
}

// errMemoryMoved says that a memory is of no use.
var errMemoryMoved = errors.New("the data is not where it was: a controller has to be reached")

// remember writes the newest location down if it is open. That it cannot is told, and stops
// nobody: the file is for a start that may never come.
func (a *App) remember(ctx context.Context) {
	loc := a.where()
	if a.memory.file == "" || loc.GetState() != pb.Location_OPEN || momentOf(loc) == a.written {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ids, err := a.identities(bounded, loc)
	if err == nil {
		err = a.memory.write(a.deployment(), loc, ids)
	}
	switch {
	case err == nil:
		a.written = momentOf(loc)
	case ctx.Err() == nil:
		a.cfg.Log.Warn("cannot remember where the data is", slog.String("file", a.memory.file), slog.Any("error", err))
	}
}

// identities are the UUIDs of a location's collections. One that is a view, or is not there,
// has none.
func (a *App) identities(ctx context.Context, loc *pb.Location) (map[string]string, error) {
	place, err := a.place(ctx, loc)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, k := range loc.GetKinds() {
		found, err := place.Client.Database(k.GetDatabase()).ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: k.GetCollection()}})
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", k.GetCollection(), err)
		}
		if len(found) == 1 && found[0].Type == "collection" && found[0].UUID != nil {
			ids[k.GetKind()] = hex.EncodeToString(found[0].UUID.Data)
		}
	}
	return ids, nil
}

// recall returns the location of the file, if the collections are still where it says.
func (m memory) recall(ctx context.Context, a *App) (*pb.Location, error) {
	if m.file == "" {
		return nil, errors.New("nothing is remembered, for no file is configured")
	}
	loc, was, err := m.read()
	if err != nil {
		return nil, err
	}
	now, err := a.identities(ctx, loc)
	if err != nil {
		return nil, err
	}
	if len(was) != len(loc.GetKinds()) || !maps.Equal(was, now) {
		return nil, fmt.Errorf("%s: %w", m.file, errMemoryMoved)
	}
	// Whatever a controller says is newer.
	loc.Epoch, loc.Revision = 0, 0
	return loc, nil
}

func (m memory) read() (*pb.Location, map[string]string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return nil, nil, fmt.Errorf("remember where the data is: %w", err)
	}
	var r remembered
	loc := &pb.Location{}
	if err = json.Unmarshal(text, &r); err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(r.Location, loc)
	}
	switch {
	case err != nil || loc.GetState() != pb.Location_OPEN:
		return nil, nil, fmt.Errorf("%s is no memory of an application: remove it", m.file)
	case r.Format != memoryFormat:
		return nil, nil, fmt.Errorf("%s has format %d, want %d: remove it", m.file, r.Format, memoryFormat)
	case m.deployment != "" && r.Deployment != m.deployment:
		return nil, nil, fmt.Errorf("%s is of deployment %q, not of %q: give another file", m.file, r.Deployment, m.deployment)
	}
	return loc, r.Identities, nil
}

// deploymentOf is whose memory it is; empty where there is none, or none that can be read.
func (m memory) deploymentOf() string {
	text, err := os.ReadFile(m.file)
	var r remembered
	if err != nil || json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.Deployment
}

// write replaces the file at once: who reads it sees the old one or the new one.
func (m memory) write(deployment string, loc *pb.Location, ids map[string]string) error {
	where, err := protojson.Marshal(loc)
	if err != nil {
		return err
	}
	text, err := json.Marshal(remembered{memoryFormat, deployment, where, ids})
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(m.file), filepath.Base(m.file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is gone when all went well
	_, err = temporary.Write(text)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), m.file)
}
