package txnmanager

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// rows is reference/errors.md, sections 1.2, 1.3, 1.4 and 2.5, column "ours":
// written down apart from the table and by name, so that a slip in either shows.
var rows = []struct {
	rpc   rpc
	names string // of kerr; numbers for codes it does not know
	want  verdict
}{
	{rpcFindCoordinator, "NONE", vOK},
	{rpcFindCoordinator, "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR NETWORK_EXCEPTION REQUEST_TIMED_OUT", vAgain},
	{rpcFindCoordinator, "GROUP_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE", vAbort},
	{rpcFindCoordinator, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST UNKNOWN_SERVER_ERROR 4711", vRefused},

	{rpcInit, "NONE", vOK},
	{rpcInit, "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS NETWORK_EXCEPTION REQUEST_TIMED_OUT", vAgain},
	{rpcInit, "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR", vElsewhere},
	{rpcInit, "PRODUCER_FENCED INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING", vFenced},
	{rpcInit, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED", vRefused},
	{rpcInit, "INVALID_TRANSACTION_TIMEOUT INVALID_REQUEST UNSUPPORTED_VERSION UNKNOWN_SERVER_ERROR 4711", vRefused},
	{rpcInit, "TRANSACTION_ABORTABLE", vAbort},

	{rpcProduce, "NONE DUPLICATE_SEQUENCE_NUMBER", vOK},
	{rpcProduce, "INVALID_PRODUCER_EPOCH INVALID_TXN_STATE TRANSACTION_ABORTABLE OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID", vAbort},
	{rpcProduce, "NOT_LEADER_FOR_PARTITION UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID LEADER_NOT_AVAILABLE KAFKA_STORAGE_ERROR REQUEST_TIMED_OUT NETWORK_EXCEPTION NOT_ENOUGH_REPLICAS_AFTER_APPEND", vAbort},
	{rpcProduce, "TOPIC_AUTHORIZATION_FAILED MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP CONCURRENT_TRANSACTIONS NOT_ENOUGH_REPLICAS 4711", vAbort},
	{rpcProduce, "INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED", vFenced},
	{rpcProduce, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_FOR_MESSAGE_FORMAT", vRefused},

	{rpcStage, "NONE", vOK},
	{rpcStage, "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NETWORK_EXCEPTION NOT_ENOUGH_REPLICAS CONCURRENT_TRANSACTIONS REQUEST_TIMED_OUT", vAgain},
	{rpcStage, "INVALID_PRODUCER_EPOCH INVALID_TXN_STATE TRANSACTION_ABORTABLE", vAbort},
	{rpcStage, "UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH GROUP_ID_NOT_FOUND", vAbort},
	{rpcStage, "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED INVALID_REQUEST UNKNOWN_SERVER_ERROR KAFKA_STORAGE_ERROR 4711", vAbort},
	{rpcStage, "PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING TRANSACTIONAL_ID_NOT_FOUND", vFenced},
	{rpcStage, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED", vRefused},
	{rpcStage, "UNSUPPORTED_VERSION", vUnsupported},

	{rpcStagePartition, "NONE", vOK},
	{rpcStagePartition, "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NETWORK_EXCEPTION NOT_ENOUGH_REPLICAS CONCURRENT_TRANSACTIONS REQUEST_TIMED_OUT", vAgain},
	{rpcStagePartition, "NOT_LEADER_FOR_PARTITION", vMoved},
	{rpcStagePartition, "UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID KAFKA_STORAGE_ERROR INVALID_RECORD_STATE INVALID_REQUEST TOPIC_AUTHORIZATION_FAILED UNKNOWN_SERVER_ERROR LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH FENCED_STATE_EPOCH INVALID_PRODUCER_EPOCH 4711", vAbort},
	{rpcStagePartition, "PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING TRANSACTIONAL_ID_NOT_FOUND", vFenced},
	{rpcStagePartition, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", vRefused},
	{rpcStagePartition, "UNSUPPORTED_VERSION", vUnsupported},

	{rpcCommit, "NONE", vOK},
	{rpcCommit, "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS", vAgain},
	{rpcCommit, "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR", vElsewhere},
	{rpcCommit, "INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING TRANSACTIONAL_ID_NOT_FOUND", vFenced},
	{rpcCommit, "INVALID_TXN_STATE", vNotCommitted},
	{rpcCommit, "TRANSACTION_ABORTABLE UNKNOWN_PRODUCER_ID", vAbort},
	{rpcCommit, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", vRefused},
	{rpcCommit, "UNKNOWN_SERVER_ERROR REQUEST_TIMED_OUT NETWORK_EXCEPTION KAFKA_STORAGE_ERROR INVALID_REQUEST UNSUPPORTED_VERSION 4711", vUnclear},

	{rpcAbort, "NONE", vOK},
	{rpcAbort, "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS", vAgain},
	{rpcAbort, "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR", vElsewhere},
	{rpcAbort, "INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING TRANSACTIONAL_ID_NOT_FOUND", vFenced},
	{rpcAbort, "INVALID_TXN_STATE", vCommitted},
	{rpcAbort, "UNKNOWN_PRODUCER_ID", vAbort},
	{rpcAbort, "TRANSACTION_ABORTABLE TRANSACTIONAL_ID_AUTHORIZATION_FAILED", vRefused},
	{rpcAbort, "UNKNOWN_SERVER_ERROR REQUEST_TIMED_OUT NETWORK_EXCEPTION KAFKA_STORAGE_ERROR INVALID_REQUEST UNSUPPORTED_VERSION 4711", vUnclear},

	{rpcAdd, "NONE", vOK},
	{rpcAdd, "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_TOPIC_OR_PARTITION OPERATION_NOT_ATTEMPTED", vAgain},
	{rpcAdd, "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR", vElsewhere},
	{rpcAdd, "INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING", vFenced},
	{rpcAdd, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED", vRefused},
	{rpcAdd, "UNKNOWN_SERVER_ERROR REQUEST_TIMED_OUT INVALID_TXN_STATE TRANSACTION_ABORTABLE 4711", vUnclear},
	{rpcDescribe, "NONE TRANSACTIONAL_ID_NOT_FOUND", vOK},
	{rpcDescribe, "REQUEST_TIMED_OUT NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS", vAgain},
	{rpcDescribe, "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR", vElsewhere},
	{rpcDescribe, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_REQUEST 4711", vRefused},
}

// codeOf finds a code by Kafka's name.
func codeOf(t *testing.T, name string) int16 {
	t.Helper()
	if name == "NONE" {
		return 0
	}
	var n int16
	if _, err := fmt.Sscan(name, &n); err == nil {
		return n
	}
	code, ok := byName()[name]
	if !ok {
		t.Fatalf("kerr knows no %s", name)
	}
	return code
}

var byName = sync.OnceValue(func() map[string]int16 {
	codes := make(map[string]int16)
	for code := int16(-1); code < 200; code++ {
		if ke, ok := kerr.ErrorForCode(code).(*kerr.Error); ok && ke.Code == code {
			codes[ke.Message] = code
		}
	}
	return codes
})

func TestClassify(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	tested := make(map[rpc]map[int16]bool)
	for _, row := range rows {
		if tested[row.rpc] == nil {
			tested[row.rpc] = make(map[int16]bool)
		}
		for _, name := range strings.Fields(row.names) {
			code := codeOf(t, name)
			if tested[row.rpc][code] {
				t.Errorf("%v %s: two rows", row.rpc, name)
			}
			tested[row.rpc][code] = true
		}
	}
	for r := range rpcs {
		for code := range meaning[r].listed {
			if !tested[r][code] {
				t.Errorf("%v code %d is in the table and in no row", r, code)
			}
		}
	}
	for _, wrong := range offRows(t) {
		t.Error(wrong)
	}
}

// offRows says where the table is not what the rows say.
func offRows(t *testing.T) (wrong []string) {
	t.Helper()
	for _, row := range rows {
		for _, name := range strings.Fields(row.names) {
			if code := codeOf(t, name); classify(row.rpc, code) != row.want {
				wrong = append(wrong, fmt.Sprintf("%v %s (%d): %v, want %v", row.rpc, name, code, classify(row.rpc, code), row.want))
			}
		}
	}
	return wrong
}

// A commit that was answered so may be done all the same; anything else is an
// answer to this attempt.
func TestHidesCommit(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for code, want := range map[int16]bool{15: true, 16: true, -1: true, 7: true, 4711: true, 51: false, 14: false, 48: false, 90: false, 0: false} {
		if got := hidesCommit(classify(rpcCommit, code)); got != want {
			t.Errorf("code %d: %v", code, got)
		}
	}
}

// The raw code is kept, also where kerr does not know it, and the class follows
// the table.
func TestRefused(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	m := &TransactionManager{id: "tx"}
	for _, c := range []struct {
		rpc   rpc
		code  int16
		class sharetxn.Class
		is    error
		text  string
	}{
		{rpcStage, 90, sharetxn.ClassFatal, sharetxn.ErrFenced, "90 PRODUCER_FENCED"},
		{rpcStage, 35, sharetxn.ClassFatal, sharetxn.ErrUnsupported, "35 UNSUPPORTED_VERSION"},
		{rpcStage, 113, sharetxn.ClassAbortable, kerr.StaleMemberEpoch, "113 STALE_MEMBER_EPOCH"},
		{rpcCommit, 53, sharetxn.ClassFatal, kerr.TransactionalIDAuthorizationFailed, "53"},
		{rpcStage, 4711, sharetxn.ClassAbortable, nil, "4711"},
	} {
		err := m.refused(c.rpc, c.code)
		if sharetxn.ClassOf(err) != c.class || err.Code != c.code || !err.FromBroker || err.TransactionalID != "tx" {
			t.Errorf("%v %d: %+v", c.rpc, c.code, err)
		}
		if c.is != nil && !isErr(err, c.is) {
			t.Errorf("%v %d is not %v", c.rpc, c.code, c.is)
		}
		if !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v %d reads %q", c.rpc, c.code, err)
		}
	}
}
