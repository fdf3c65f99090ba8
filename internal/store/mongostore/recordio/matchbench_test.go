package recordio_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// BenchmarkMatch is an update as services make it, a read and a write that depends on it. It compares
// one that depends on all that was read (record.MatchDoc) with one that depends on a revision, as
// medians of the time. The ways take turns, so that what else the machine does meets both.
func BenchmarkMatch(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			e := storetest.NewEngine(b)
			tok := e.Collection("k", "k", false)
			client, key := e.NS.Client(), record.StringKey("a")
			fields := bson.D{{Key: "_id", Value: "a"}, {Key: "revision", Value: int64(0)}}
			for i := range size / 64 {
				fields = append(fields, bson.E{Key: fmt.Sprintf("f%04d", i), Value: strings.Repeat("x", 48)})
			}
			write := func(m record.Mutation) {
				m.Kind, m.Key = "k", key
				if err := client.Write(b.Context(), storetest.TokensOf(tok), []record.Mutation{m}); err != nil {
					b.Fatal(err)
				}
			}
			write(record.Mutation{Doc: wire.MustMarshal(fields), Absent: true})
			took := [2][]time.Duration{}
			for n := int64(1); b.Loop(); n++ {
				whole := n % 2
				start := time.Now()
				was, err := client.Get(b.Context(), tok, key)
				if err != nil {
					b.Fatal(err)
				}
				match := record.MatchDoc(was.Doc)
				if whole == 0 {
					match = &record.Match{Path: "revision", Value: was.Doc.Lookup("revision")}
				}
				fields[1].Value = n
				write(record.Mutation{Doc: wire.MustMarshal(fields), Match: match})
				took[whole] = append(took[whole], time.Since(start))
			}
			var medians [2]float64
			for i := range took {
				slices.Sort(took[i])
				if len(took[i]) > 0 {
					medians[i] = float64(took[i][len(took[i])/2])
				}
			}
			if medians[0] > 0 {
				b.ReportMetric(medians[1]/medians[0], "whole/revision")
				b.ReportMetric(medians[0]/1e3, "revision-µs")
				b.ReportMetric(medians[1]/1e3, "whole-µs")
			}
		})
	}
}
