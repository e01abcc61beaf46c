#!/usr/bin/env bash
# hdrhistogram 0.10.8
#
# record_corrected_value(latency, interval), which adds the requests that a slow one has kept back, records one more than the
# HdrHistogram of Java and C: those stop at the interval; here what is left of it is recorded, too, a short latency that no
# request can have had. So requests that take 11 ms each where one is sent every 10 ms, the interval of the README, are reported
# with a median of 1 ms, and are twice as many: the correction, made to show that requests wait, hides it.
# Three more numbers mislead: output_percentile_distribution divides the mean and the maximum by the ratio of units that it is
# given, but not the standard deviation beside them; HistogramLogWriter cuts the maximum of an interval off to whole units, so
# that 1.9 ms are written as 1; and to add a histogram without values, as of an idle second, makes the minimum 0.
# It concerns latency reports: call record_value for value, value - interval, ... as long as they are not below the interval;
# divide the standard deviation; read the maximum from the payload; and skip histograms whose get_total_count() is 0.
. "$(dirname "$0")/fresh.bash"
install hdrhistogram==0.10.8

expect "100 requests of 11 ms, one sent every 10 ms
hdrhistogram: values 200, median 1, mean 6.00, minimum 1
as in Java: values 100, median 11, mean 11.00, minimum 11
90 requests of 11 to 19 ms, one sent every 10 ms
hdrhistogram: values 180, median 9, mean 10.00, minimum 1
as in Java: values 90, median 15, mean 15.00, minimum 11
latencies of 1100 and 1900 us, reported in ms
#[Mean = 1.500, StdDeviation = 400.000] #[Max = 1.900, TotalCount = 2.000]
interval of a log: start, length, maximum 1.000000 1.000000 1.000000
the maximum in its payload: 1900
minimum 1100, after an empty histogram was added 0" <<'PY'
import io

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter


def make():
    return HdrHistogram(1, 3_600_000_000, 3)


def by_hdrhistogram(histogram, latency, interval):
    histogram.record_corrected_value(latency, interval)


def by_java(histogram, latency, interval):
    """AbstractHistogram.recordValueWithExpectedInterval of Java."""
    histogram.record_value(latency)
    for missing in range(latency - interval, interval - 1, -interval):
        histogram.record_value(missing)


for title, latencies in (
    ("100 requests of 11 ms", [11] * 100),
    ("90 requests of 11 to 19 ms", list(range(11, 20)) * 10),
):
    print(f"{title}, one sent every 10 ms")
    for name, record in (("hdrhistogram", by_hdrhistogram), ("as in Java", by_java)):
        histogram = make()
        for latency in latencies:
            record(histogram, latency, 10)
        print(
            f"{name}: values {histogram.get_total_count()}, median {histogram.get_value_at_percentile(50)},"
            f" mean {histogram.get_mean_value():.2f}, minimum {histogram.get_min_value()}"
        )

histogram = make()
for latency in (1100, 1900):
    histogram.record_value(latency)
report = io.BytesIO()
histogram.output_percentile_distribution(report, 1000)
print("latencies of 1100 and 1900 us, reported in ms")
print(*(word for line in report.getvalue().decode().splitlines() if line.startswith("#[M") for word in line.split()))
with open("log", "w") as file:
    HistogramLogWriter(file).output_interval_histogram(histogram, 1, 2, 1000)
print("interval of a log: start, length, maximum", *open("log").read().split(",")[:3])
print(f"the maximum in its payload: {HistogramLogReader('log', make()).get_next_interval_histogram().get_max_value()}")
before = histogram.get_min_value()
histogram.add(make())
print(f"minimum {before}, after an empty histogram was added {histogram.get_min_value()}")
PY
