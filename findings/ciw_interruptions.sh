#!/usr/bin/env bash
# ciw 3.2.7, with networkx 3.6.1 and tqdm 4.70.1
#
# Ciw, which simulates queues, forgets work that is interrupted. Where a customer of a higher priority takes the server, or a
# shift ends, server_utilisation lacks the time that the interrupted service had taken: the busier a server is, the more of it.
# A queue whose load is 0.8 by its arrivals and service times has a utilisation of 0.80 without interruption, and of 0.41 with it.
# In records, the waiting_time of one who was interrupted counts the service that it had before the interruption as waiting, and
# the service_time of the record of an interruption is the whole time that was planned, not what was served until then.
# It concerns simulations of clusters and queues with preemption, which look idle and slow: add up exit_date - service_start_date
# of all records, as in the last number of a line; what is left between arrival_date and the last exit_date was spent waiting.
. "$(dirname "$0")/fresh.bash"
install networkx==3.6.1 tqdm==4.70.1 numpy==2.4.6
install_alone ciw==3.2.7

expect "a service of 10 from 1 on, an urgent one of 1 at 6, until 20
interruption False: utilisation 0.55, by the records 0.55
  other, service: arrives 1, starts 1, exits 11, service_time 10, waiting_time 0
  urgent, service: arrives 6, starts 11, exits 12, service_time 1, waiting_time 5
interruption resume: utilisation 0.30, by the records 0.55
  other, interrupted service: arrives 1, starts 1, exits 6, service_time 10, waiting_time 0
  urgent, service: arrives 6, starts 6, exits 7, service_time 1, waiting_time 0
  other, service: arrives 1, starts 7, exits 12, service_time 5, waiting_time 6
interruption restart: utilisation 0.55, by the records 0.80
  other, interrupted service: arrives 1, starts 1, exits 6, service_time 10, waiting_time 0
  urgent, service: arrives 6, starts 6, exits 7, service_time 1, waiting_time 0
  other, service: arrives 1, starts 7, exits 17, service_time 10, waiting_time 6
interruption resample: utilisation 0.55, by the records 0.80
  other, interrupted service: arrives 1, starts 1, exits 6, service_time 10, waiting_time 0
  urgent, service: arrives 6, starts 6, exits 7, service_time 1, waiting_time 0
  other, service: arrives 1, starts 7, exits 17, service_time 10, waiting_time 6
a service of 10 from 1 on, shifts of 6
interruption resume: utilisation 0.42, by the records 0.83
random arrivals: urgent ones of 0.1, four in a unit of time, and services of 10, one in 25 units; a load of 0.8
interruption False: utilisation 0.80, by the records 0.80
interruption resume: utilisation 0.41, by the records 0.82" <<'PY'
import ciw

SERVICE = ("service", "interrupted service")


def simulate(network, end):
    ciw.seed(0)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(end)
    records = [record for record in simulation.get_all_records() if record.record_type in SERVICE]
    return simulation.transitive_nodes[0].server_utilisation, records


def once(date):
    return ciw.dists.Sequential([date, float("inf")])


def served(records):
    return sum(record.exit_date - record.service_start_date for record in records)


def report(name, network, end):
    utilisation, records = simulate(network, end)
    print(f"{name}: utilisation {utilisation:.2f}, by the records {served(records) / end:.2f}")
    return records


def priorities(interruption, arrivals, services):
    return ciw.create_network(
        arrival_distributions=dict(zip(("urgent", "other"), arrivals)),
        service_distributions=dict(zip(("urgent", "other"), services)),
        number_of_servers=[1],
        priority_classes=({"urgent": 0, "other": 1}, [interruption]),
    )


print("a service of 10 from 1 on, an urgent one of 1 at 6, until 20")
arrivals = [once(6.0)], [once(1.0)]
services = [ciw.dists.Deterministic(1.0)], [ciw.dists.Deterministic(10.0)]
for interruption in (False, "resume", "restart", "resample"):
    records = report(f"interruption {interruption}", priorities(interruption, arrivals, services), 20)
    for record in sorted(records, key=lambda record: record.service_start_date):
        print(
            f"  {record.customer_class}, {record.record_type}: arrives {record.arrival_date:g},"
            f" starts {record.service_start_date:g}, exits {record.exit_date:g},"
            f" service_time {record.service_time:g}, waiting_time {record.waiting_time:g}"
        )

print("a service of 10 from 1 on, shifts of 6")
network = ciw.create_network(
    arrival_distributions=[once(1.0)],
    service_distributions=[ciw.dists.Deterministic(10.0)],
    number_of_servers=[ciw.Schedule([1, 1], [6, 12], preemption="resume")],
)
report("interruption resume", network, 12)

print("random arrivals: urgent ones of 0.1, four in a unit of time, and services of 10, one in 25 units; a load of 0.8")
arrivals = [ciw.dists.Exponential(4.0)], [ciw.dists.Exponential(0.04)]
services = [ciw.dists.Exponential(10.0)], [ciw.dists.Exponential(0.1)]
for interruption in (False, "resume"):
    report(f"interruption {interruption}", priorities(interruption, arrivals, services), 20000)
PY
