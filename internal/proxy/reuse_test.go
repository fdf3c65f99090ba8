package proxy

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// TestReusedMemory: clients read large batches at the same time. Each one gets its own, although their memory is used
// again and again.
func TestReusedMemory(t *testing.T) {
	t.Parallel()
	const clients, batches, size = 4, 10, 2 << 20
	w := newWorld(t, worldOptions{})
	filling := func(id int64) string { return strings.Repeat(string(rune('a'+id)), size) }
	w.at["v1"].on("find", func(c command) bsoncore.Document {
		return doc(t, fmt.Sprintf(`{"cursor":{"firstBatch":[],"id":{"$numberLong":"%d"},"ns":"shop.others"},"ok":1.0}`, number(c.msg.Body, "skip")))
	})
	w.at["v1"].on("getMore", func(c command) bsoncore.Document {
		id := number(c.msg.Body, "getMore")
		batch := bsoncore.NewArrayBuilder().AppendDocument(bsoncore.NewDocumentBuilder().AppendString("filling", filling(id)).Build()).Build()
		cursor := bsoncore.NewDocumentBuilder().AppendArray("nextBatch", batch).AppendInt64("id", id).AppendString("ns", "shop.others").Build()
		return bsoncore.NewDocumentBuilder().AppendDocument("cursor", cursor).AppendDouble("ok", 1).Build()
	})
	var g sync.WaitGroup
	for id := int64(1); id <= clients; id++ {
		conn := dial(t, w.addresses[0])
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		g.Go(func() {
			want := filling(id)
			call(t, conn, fmt.Sprintf(`{"find":"others","skip":%d,%s}`, id, session))
			for range batches {
				docs, err := batchOf(call(t, conn, fmt.Sprintf(`{"getMore":{"$numberLong":"%d"},"collection":"others",%s}`, id, session)))
				if err != nil || len(docs) != 1 {
					t.Errorf("%d documents, %v", len(docs), err)
					return
				}
				if got, _ := text(docs[0], "filling"); got != want {
					t.Errorf("client %d got something else", id)
					return
				}
			}
		})
	}
	g.Wait()
}
