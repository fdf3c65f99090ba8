package moves

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
)

// Path is where a server answers questions about moves. It is a path of its API port, so callers need
// the role of an application.
const Path = "/dbcontroller/moves/standing"

// Question asks whether the counterpart of a record that moves stands in another region.
type Question struct {
	Kind    string
	Version string // API version of the asking region, which Kind and Name belong to
	Name    string
	Own     region.Move
}

// questionMost and answerMost bound what is read of another process, in bytes.
const (
	questionMost = 16 << 10
	answerMost   = 1 << 10
)

// question is the form of a Question on the wire. The format may only grow.
type question struct {
	From    string `json:"from"` // the asking region
	Kind    string `json:"kind"`
	Version string `json:"version"`
	Name    string `json:"name"`
	Own     string `json:"own"` // region.Move
}

type answer struct {
	Stands bool `json:"stands"`
	// Region is the one that answers. A wrong address must not end moves.
	Region string `json:"region"`
}

// Ask sends a question to the servers of the region to. An answer of another region is an error.
func Ask(ctx context.Context, client *http.Client, endpoint, to, from string, q Question) (bool, error) {
	body, err := json.Marshal(question{from, q.Kind, q.Version, q.Name, q.Own.String()})
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+Path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the question about a move is answered with %s", res.Status)
	}
	var a *answer
	if err := json.NewDecoder(io.LimitReader(res.Body, answerMost)).Decode(&a); err != nil || a == nil {
		return false, errors.New("the answer about a move cannot be read")
	}
	if a.Region != to {
		return false, fmt.Errorf("region %q answers at the endpoint of region %s: correct regions.others", a.Region, to)
	}
	return a.Stands, nil
}

// Handler answers the questions of other regions over the active data of the region here, and passes on all
// other requests. version is the API version of data.
func Handler(data Data, here, version string, kinds map[string]Kind, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path {
			next.ServeHTTP(w, r)
			return
		}
		stands, err := answered(r, data, version, kinds)
		if err != nil {
			refused, ok := refusal.In(err)
			if !ok {
				refused = connect.NewError(connect.CodeOf(err), err)
			}
			refusal.Write(w, r, refused)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer{stands, here}) // the caller has gone
	})
}

// answered reads a question and the record that it is about.
func answered(r *http.Request, data Data, version string, kinds map[string]Kind) (bool, error) {
	var q question
	if err := json.NewDecoder(io.LimitReader(r.Body, questionMost)).Decode(&q); err != nil {
		return false, connect.NewError(connect.CodeInvalidArgument, errors.New("it is no question about a move"))
	}
	own := region.ParseMove(q.Own)
	if own.Step == "" || q.From == "" {
		return false, connect.NewError(connect.CodeInvalidArgument, errors.New("the question names no move"))
	}
	if k, ok := kinds[q.Kind]; ok && q.Version == version {
		rec, err := data.Get(r.Context(), q.Kind, q.Name)
		if errors.Is(err, record.ErrNotFound) {
			return false, nil
		}
		return err == nil && Standing(q.From, own, k.MoveOf(rec.Doc)), err
	}
	// In another version the record can have another name. A list after a subscription has everything that
	// was acknowledged before (vrunner.Store), and a record of a move keeps its place until the move goes on.
	for kind, k := range kinds {
		stands, err := listed(r.Context(), data, kind, k, q.From, own)
		if stands || err != nil {
			return stands, err
		}
	}
	return false, nil
}

var errFound = errors.New("found")

func listed(ctx context.Context, data Data, kind string, k Kind, from string, own region.Move) (bool, error) {
	sub, err := data.Changes(ctx, kind)
	if err != nil {
		return false, err
	}
	defer sub.Close()
	err = eachRecord(ctx, data, k.Kind, kind, func(_ string, move region.Move) error {
		if Standing(from, own, move) {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}
