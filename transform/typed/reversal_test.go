package typed_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/typed"
)

// Times as seconds in one version and as dates in the other, where a large number of
// seconds overflows into another date.
type secondsDoc struct {
	ID string `bson:"_id"`
	At int64  `bson:"at"`
}

type dateDoc struct {
	ID   string    `bson:"_id"`
	Date time.Time `bson:"date"`
}

type secondsGroup struct {
	Event *secondsDoc `typed:"kind=seconds"`
}

type dateGroup struct {
	Event *dateDoc `typed:"kind=dates"`
}

func eventGroup(oneWay bool) (transform.Spec, error) {
	return typed.Group[secondsGroup, dateGroup]{
		Name: "events", Revision: "1", OneWay: oneWay,
		Up: func(old secondsGroup, _ dateGroup) (dateGroup, error) {
			return dateGroup{&dateDoc{Date: time.Unix(old.Event.At, 0)}}, nil
		},
		Down: func(new dateGroup, _ secondsGroup) (secondsGroup, error) {
			return secondsGroup{&secondsDoc{At: new.Event.Date.Unix()}}, nil
		},
	}.Spec()
}

func eventPair(oneWay bool) (transform.Spec, error) {
	tr, err := typed.Compile(typed.Pair[secondsDoc, dateDoc]{
		Name: "events", Revision: "1", OneWay: oneWay,
		OldKind: record.KindSpec{Name: "seconds"}, NewKind: record.KindSpec{Name: "dates"},
		Whole: &typed.Whole[secondsDoc, dateDoc]{
			OldFields: []string{"at"}, NewFields: []string{"date"},
			Up:   func(old secondsDoc, new *dateDoc) error { new.Date = time.Unix(old.At, 0); return nil },
			Down: func(new dateDoc, old *secondsDoc) error { old.At = new.Date.Unix(); return nil },
		},
	})
	if err != nil {
		return transform.Spec{}, err
	}
	return tr.Spec, nil
}

// What a function makes of a whole record or group is taken back before it is stored, as
// what it makes of a field is.
func TestOverflowIsNotStored(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(bool) (transform.Spec, error){"group": eventGroup, "pair": eventPair} {
		for _, oneWay := range []bool{false, true} {
			s, err := make(oneWay)
			if err != nil {
				t.Fatal(err)
			}
			up, _ := directions(t, s)
			take := func(at int64) error {
				src := rec(t, "seconds", bson.D{{Key: "_id", Value: "e"}, {Key: "at", Value: at}})
				id, _, err := up.GroupOf("seconds", src.Key)
				if err != nil {
					t.Fatal(err)
				}
				_, err = up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{src}}, transform.Group{Name: id.Name})
				return err
			}
			if err := take(1_700_000_000); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			err = take(math.MaxInt64 / 1000 * 2)
			switch {
			case oneWay && err != nil:
				t.Errorf("%s, one-way: %v", name, err)
			case !oneWay && (err == nil || !strings.Contains(err.Error(), "seconds e would have another at")):
				t.Errorf("%s: an overflow gives %v", name, err)
			}
		}
	}
}
