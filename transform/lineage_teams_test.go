package transform_test

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

type oldDoc struct {
	ID   string `bson:"_id"`
	Team string `bson:"team,omitempty"`
	Seat string `bson:"seat,omitempty"`
	N    int    `bson:"n"`
}

type teamDoc struct {
	ID      string   `bson:"_id"`
	Members []string `bson:"members"`
	Note    string   `bson:"note,omitempty"`
}

type seatDoc struct {
	ID   string `bson:"_id"`
	Team string `bson:"team"`
	Of   string `bson:"of"`
	Note string `bson:"note,omitempty"`
}

func marshal(v any) bson.Raw {
	b, err := bson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decoded[T any](r record.Record) (v T) {
	if err := bson.Unmarshal(r.Doc, &v); err != nil {
		panic(err)
	}
	return v
}

func byTeam(r record.Record) (string, error) {
	team := decoded[oldDoc](r).Team
	switch team {
	case "":
		return "", errors.New("no team")
	case "panic":
		panic("team")
	}
	return string(record.StringKey(team)), nil
}

// teamUp makes a team's records. A note that the target holds stays.
func teamUp(src, have transform.Group) ([]record.Record, error) {
	name, _ := record.Key(src.Name).Name()
	team := teamDoc{ID: name}
	notes := map[string]string{}
	for _, h := range have.Records {
		if h.Kind == "teams2" {
			team.Note = decoded[teamDoc](h).Note
		} else {
			notes[h.Key.String()] = decoded[seatDoc](h).Note
		}
	}
	var out []record.Record
	for _, r := range src.Records {
		d := decoded[oldDoc](r)
		if d.N < 0 {
			return nil, errNegative
		}
		team.Members = append(team.Members, fmt.Sprintf("%s/%s=%d", r.Kind, d.ID, d.N))
		if d.Seat != "" {
			seat := seatDoc{ID: d.Seat, Team: name, Of: d.ID, Note: notes[d.Seat]}
			out = append(out, record.Record{Kind: "seats2", Key: record.StringKey(d.Seat), Doc: marshal(seat)})
		}
	}
	if name == loose {
		return out, nil
	}
	return append(out, record.Record{Kind: "teams2", Key: record.StringKey(name), Doc: marshal(team)}), nil
}

func teamsRegistry() (*transform.Registry, error) {
	r := transform.NewRegistry("test")
	return r, r.Add("v1", "v2", transform.Spec{
		Name: "teams", Revision: "1", UpNeedsHave: true, Reversal: transform.ReversalNone,
		Old: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "desks1"}, Content: byTeam},
			{KindSpec: record.KindSpec{Name: "people1"}, Content: byTeam},
			{KindSpec: record.KindSpec{Name: "teams1"}},
		}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "teams2"}},
			{KindSpec: record.KindSpec{Name: "seats2"}, Content: func(r record.Record) (string, error) {
				return string(record.StringKey(decoded[seatDoc](r).Team)), nil
			}},
		}},
		Up:   teamUp,
		Down: func(transform.Group, transform.Group) ([]record.Record, error) { return nil, errors.New("not here") },
	})
}

func set(kind, id, team, seat string, n int) record.Mutation {
	return record.Mutation{Kind: kind, Key: record.StringKey(id), Doc: marshal(oldDoc{id, team, seat, n})}
}

func del(kind, id string) record.Mutation {
	return record.Mutation{Kind: kind, Key: record.StringKey(id)}
}
