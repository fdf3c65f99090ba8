package integration_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/subprocess"
)

// member is what a member of an etcd cluster is told, as JSON in memberVariable.
type member struct {
	Name, Dir    string
	Client, Peer string // URLs
	Cluster      string // all members, as --initial-cluster has them
	TLS          *etcdTLS
}

// etcdTLS names files, in PEM: of the authority, and of a member and a client. Clients without
// a certificate are refused.
type etcdTLS struct{ CA, Cert, Key, ClientCert, ClientKey string }

// config is that of a client.
func (f *etcdTLS) config() (*tls.Config, error) {
	if f == nil {
		return nil, nil
	}
	return transport.TLSInfo{CertFile: f.ClientCert, KeyFile: f.ClientKey, TrustedCAFile: f.CA}.ClientConfig()
}

const memberVariable = "DBCONTROLLER_INTEGRATION_MEMBER"

// playEtcd is the life of a member.
func playEtcd(ctx context.Context) error {
	var m member
	if err := json.Unmarshal([]byte(os.Getenv(memberVariable)), &m); err != nil {
		return fmt.Errorf("read member: %w", err)
	}
	clients, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peers, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	if f := m.TLS; f != nil {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: f.Cert, KeyFile: f.Key, TrustedCAFile: f.CA, ClientCertAuth: true}
	}
	c.LogLevel = "error"
	c.UnsafeNoFsync = true // members are killed, their machine is not
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.Err():
		return err
	}
}

// members are an etcd cluster of processes.
type members struct {
	t       *testing.T
	members []member
	running []*child // nil: killed
	clients []*clientv3.Client
}

// startMembers starts three members and returns when they have a leader. Without files their
// connections are plain.
func startMembers(ctx context.Context, t *testing.T, files *etcdTLS) *members {
	t.Helper()
	return startSomeMembers(ctx, t, 3, files)
}

func startSomeMembers(ctx context.Context, t *testing.T, count int, files *etcdTLS) *members {
	t.Helper()
	m := &members{t: t, running: make([]*child, count)}
	dir, urls := t.TempDir(), freeURLs(t, 2*count)
	var cluster []string
	for i := range count {
		name := fmt.Sprintf("m%d", i)
		client := urls[2*i]
		if files != nil {
			client = strings.Replace(client, "http:", "https:", 1)
		}
		m.members = append(m.members, member{Name: name, Dir: filepath.Join(dir, name), Client: client, Peer: urls[2*i+1], TLS: files})
		cluster = append(cluster, name+"="+urls[2*i+1])
	}
	for i := range m.members {
		m.members[i].Cluster = strings.Join(cluster, ",")
		how, err := files.config()
		if err != nil {
			t.Fatal(err)
		}
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.members[i].Client}, TLS: how, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // its member may be gone
		m.clients = append(m.clients, c)
		m.start(i)
	}
	m.leader(ctx)
	return m
}

// freeURLs are addresses of loopback that were free a moment ago.
func freeURLs(t *testing.T, n int) (urls []string) {
	t.Helper()
	ports, err := subprocess.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	return urls
}

func (m *members) endpoints() (urls []string) {
	for _, one := range m.members {
		urls = append(urls, one.Client)
	}
	return urls
}

// start starts a member, for the first time or again.
func (m *members) start(i int) {
	m.t.Helper()
	text, err := json.Marshal(m.members[i])
	if err != nil {
		m.t.Fatal(err)
	}
	m.running[i] = spawn(m.t, "etcd-"+m.members[i].Name, command(m.t, roleEtcd, nil, []string{memberVariable + "=" + string(text)}))
}

func (m *members) kill(i int) {
	m.t.Helper()
	m.running[i].kill()
	m.running[i] = nil
}

// again kills the one member, does something with its data, and starts it again.
func (m *members) again(ctx context.Context, do func(dir string)) {
	m.t.Helper()
	m.kill(0)
	do(m.members[0].Dir)
	m.start(0)
	m.answer(ctx)
}

// leader waits until a member leads that others know as their leader, and returns it.
func (m *members) leader(ctx context.Context) (leader int) {
	m.t.Helper()
	eventually(ctx, m.t, "etcd has a leader", func() error {
		ids, votes := map[uint64]int{}, map[uint64]int{}
		for i := range m.members {
			if m.running[i] == nil {
				continue
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			status, err := m.clients[i].Status(short, m.members[i].Client)
			cancel()
			if err == nil {
				ids[status.Header.MemberId] = i
				votes[status.Leader]++
			}
		}
		for id, n := range votes {
			if i, answers := ids[id]; answers && n > len(m.members)/2 {
				leader = i
				return nil
			}
		}
		return errors.New("no member is known as leader by most")
	})
	return leader
}

// killLeader kills the leader, and returns when another one leads and the old one has been
// started again.
func (m *members) killLeader(ctx context.Context) {
	m.t.Helper()
	old := m.leader(ctx)
	m.kill(old)
	m.leader(ctx)
	m.start(old)
	m.answer(ctx)
}

// loseMajority kills the leader and another member for a while.
func (m *members) loseMajority(ctx context.Context, while func()) {
	m.t.Helper()
	leader := m.leader(ctx)
	dead := []int{leader, (leader + 1) % len(m.members)}
	for _, i := range dead {
		m.kill(i)
	}
	while()
	for _, i := range dead {
		m.start(i)
	}
	m.answer(ctx)
}

// answer waits until all members answer, with what a majority has.
func (m *members) answer(ctx context.Context) {
	m.t.Helper()
	for i := range m.members {
		eventually(ctx, m.t, m.members[i].Name+" answers", func() error {
			if m.running[i] == nil {
				return errors.New("it does not run")
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := m.clients[i].Get(short, "any")
			return err
		})
	}
}
